"""The builder: what it keys on, what it takes from elsewhere, what it says."""

import re
from pathlib import Path

import pytest

from tests.tools import builder, cache
from tests.tools.programs import MODULES, RELEASE, GoModule, module_of, wanted
from tests.tools.required import require

ROOT = Path(__file__).parents[3]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no assets."""
    monkeypatch.setenv("PODSCALE_TOOLS", str(tmp_path / "tools"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path / "tools"


def test_nothing_is_found_before_it_is_built(tools: Path) -> None:
    assert cache.find("kubectl") is None
    assert not tools.exists()


def test_assets_of_envtest_come_first(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kubectl").touch()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert cache.find("kubectl") == tmp_path / "kubectl"
    assert cache.find("kube-apiserver") is None


def test_the_control_plane_is_of_the_release_that_is_asked_for(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kube-apiserver").touch()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    monkeypatch.delenv(RELEASE, raising=False)
    newest = module_of("kube-apiserver")
    assert newest.release == "1.37"
    assert cache.find("kube-apiserver") == tmp_path / "kube-apiserver"
    assert {module.release for module in wanted()} == {"", "1.37"}
    monkeypatch.setenv(RELEASE, "1.36")
    assert module_of("kube-apiserver").release == "1.36"
    assert module_of("kubectl") == newest
    assert cache.find("kube-apiserver") is None  # of the assets nothing is known
    assert list(wanted()) == list(MODULES)
    monkeypatch.setenv(RELEASE, "1.35")
    with pytest.raises(ValueError, match=r"PODSCALE_KUBERNETES=1.35: there are 1.36, 1.37"):
        module_of("kube-apiserver")


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_the_stamped_versions_are_those_that_are_built(module: GoModule) -> None:
    locked = (module.directory / "go.mod").read_text()
    assert (module.directory / "go.sum").stat().st_size > 0
    for program, package in module.programs.items():
        assert f"\t{package}\n" in locked or f"tool {package}\n" in locked, program
    for variable, value in module.stamps.items():
        root, locked_version = _root_of(variable, value)
        if root:
            assert re.search(rf"\s{re.escape(root)} {re.escape(locked_version)}\s", locked), value


def _root_of(variable: str, value: str) -> tuple[str, str]:
    """Return the Go module a stamp speaks of and the version it must be locked at."""
    if variable.endswith("gitVersion"):
        return "k8s.io/kubernetes", value
    if variable.startswith("helm.sh") and variable.endswith("version.version"):
        return "helm.sh/helm/v3", value
    if variable == "github.com/prometheus/common/version.Version":
        major, minor, patch = value.split(".")  # 3.15.0 is the Go module's v0.315.0
        return "github.com/prometheus/prometheus", f"v0.{major}{minor:0>2}.{patch}"
    return "", ""


def test_another_flag_is_another_key() -> None:
    etcd = module_of("etcd")
    stamped = GoModule(etcd.name, etcd.programs, etcd.cold_build_s, {"main.version": "1"})
    assert cache.source_key(etcd) != cache.source_key(stamped)


def test_without_go_the_builder_names_the_way_to_get_it(
    tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(builder.BuildError, match="apt-get install golang-go"):
        builder.build(["etcd"])


def test_an_absent_program_skips_here_and_fails_in_ci(
    tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("PODSCALE_PROGRAMS", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"python -m tests\.tools build kubernetes"):
        require("kubectl")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"python -m tests\.tools build kubernetes"):
        require("kubectl")
