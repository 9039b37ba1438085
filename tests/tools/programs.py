"""The Go programs that the tests run, and the module that builds each of them.

One directory under ``go/`` per module: their dependencies contradict one another.
The versions below are those of the ``go.mod`` files and move together with them.
Kubernetes is there twice; ``$PODSCALE_KUBERNETES`` says whose control plane is run.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

GO_MODULES = Path(__file__).parent / "go"

# Of two modules that build a program, the one of this release is taken.
RELEASE = "PODSCALE_KUBERNETES"
Release = Literal["1.36", "1.37"]
OLDER: Release = "1.36"
NEWEST: Release = "1.37"
RELEASES: tuple[Release, ...] = (OLDER, NEWEST)
_COMMANDS = "k8s.io/kubernetes/cmd"
_VPA = "k8s.io/autoscaler/vertical-pod-autoscaler/pkg"


@dataclass(frozen=True)
class GoModule:
    """A directory with go.mod and go.sum, and the programs that come out of it."""

    name: str
    programs: Mapping[str, str]  # file name -> Go package
    cold_build_s: int  # as seen on 2 cores with empty caches
    stamps: Mapping[str, str] = field(default_factory=dict)  # Go variable -> value
    release: str = ""  # of Kubernetes, where there are two

    @property
    def directory(self) -> Path:
        return GO_MODULES / self.name

    @property
    def ldflags(self) -> str:
        stamps = [f"-X {variable}={value}" for variable, value in self.stamps.items()]
        return " ".join(["-s", "-w", *stamps])


_CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")


def _kubernetes(name: str, version: str, *programs: str) -> GoModule:
    major, minor, _ = version.removeprefix("v").split(".")
    # Unstamped, /version says v0.0.0-master and kubectl warns of a version skew.
    stamped = {
        "gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"
    }  # fmt: skip
    stamps = {
        f"k8s.io/{library}.{variable}": value
        for library in ("component-base/version", "client-go/pkg/version")
        for variable, value in stamped.items()
    }
    packages = {program: f"{_COMMANDS}/{program}" for program in programs}
    return GoModule(name, packages, 360, stamps, release=f"{major}.{minor}")


# What the ring of most tests needs first comes first: `build` keeps this order.
MODULES = (
    GoModule(
        "prometheus",
        {
            "prometheus": "github.com/prometheus/prometheus/cmd/prometheus",
            "promtool": "github.com/prometheus/prometheus/cmd/promtool",
        },
        360,
        {"github.com/prometheus/common/version.Version": "3.15.0"},
    ),
    GoModule("etcd", {"etcd": "go.etcd.io/etcd/server/v3"}, 25),
    _kubernetes("kubernetes", "v1.37.2", *_CONTROL_PLANE, "kubectl"),
    GoModule(
        "helm",
        {"helm": "helm.sh/helm/v3/cmd/helm"},
        75,
        # Without the last two, `helm template` renders for Kubernetes 1.20.
        {
            "helm.sh/helm/v3/internal/version.version": "v3.22.0",
            "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor": "1",
            "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor": "37",
        },
    ),
    GoModule("kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}, 120),
    GoModule(
        "vpa",
        {
            "recommender": f"{_VPA}/recommender",
            "updater": f"{_VPA}/updater",
            "admission-controller": f"{_VPA}/admission-controller",
        },
        120,
    ),
    GoModule(
        "prometheus-adapter",
        {"prometheus-adapter": "sigs.k8s.io/prometheus-adapter/cmd/adapter"},
        100,
    ),
    GoModule("karpenter", {"karpenter": "sigs.k8s.io/karpenter/kwok"}, 180),
    _kubernetes("kubernetes-1.36", "v1.36.3", *_CONTROL_PLANE),
)

# Programs that a KUBEBUILDER_ASSETS directory holds (controller-runtime's envtest).
ENVTEST_PROGRAMS = frozenset({"etcd", "kube-apiserver", "kubectl"})


def release() -> Release:
    """Return the release of Kubernetes that the tests run: the newest, or ``$PODSCALE_KUBERNETES``.

    kubectl, helm and what the tests use it for beside a control plane stay the newest.
    """
    chosen = os.environ.get(RELEASE) or NEWEST
    for known in RELEASES:
        if chosen == known:
            return known
    raise ValueError(f"{RELEASE}={chosen}: there are {', '.join(RELEASES)}")


def module_of(name: str, of: str = "") -> GoModule:
    """Return the module of this name, or the one that builds the program of this name.

    ``of`` is a release of Kubernetes, by default the one that the tests run.
    """
    found = [module for module in MODULES if name == module.name or name in module.programs]
    if not found:
        known = sorted({m.name for m in MODULES} | {p for m in MODULES for p in m.programs})
        raise ValueError(f"no tool is called {name!r}; known are {', '.join(known)}")
    return next((module for module in found if module.release == (of or release())), found[0])


def wanted() -> tuple[GoModule, ...]:
    """Return the modules that build what the tests of this release run."""
    chosen = {module_of(program).name for module in MODULES for program in module.programs}
    return tuple(module for module in MODULES if module.name in chosen)
