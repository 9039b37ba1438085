"""The Go programs that the tests run, and the module that builds each of them.

One directory under ``go/`` per module: their dependencies contradict one another.
The versions below are those of the ``go.mod`` files and move together with them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

GO_MODULES = Path(__file__).parent / "go"

_COMMANDS = "k8s.io/kubernetes/cmd"
_VPA = "k8s.io/autoscaler/vertical-pod-autoscaler/pkg"


@dataclass(frozen=True)
class GoModule:
    """A directory with go.mod and go.sum, and the programs that come out of it."""

    name: str
    programs: Mapping[str, str]  # file name -> Go package
    cold_build: str  # as seen on 2 cores with empty caches
    stamps: Mapping[str, str] = field(default_factory=dict)  # Go variable -> value

    @property
    def directory(self) -> Path:
        return GO_MODULES / self.name

    @property
    def ldflags(self) -> str:
        stamps = [f"-X {variable}={value}" for variable, value in self.stamps.items()]
        return " ".join(["-s", "-w", *stamps])


# What the ring of most tests needs first comes first: `build` keeps this order.
MODULES = (
    GoModule(
        "prometheus",
        {
            "prometheus": "github.com/prometheus/prometheus/cmd/prometheus",
            "promtool": "github.com/prometheus/prometheus/cmd/promtool",
        },
        "6 min",
        {"github.com/prometheus/common/version.Version": "3.15.0"},
    ),
    GoModule("etcd", {"etcd": "go.etcd.io/etcd/server/v3"}, "25 s"),
    GoModule(
        "kubernetes",
        {
            "kube-apiserver": f"{_COMMANDS}/kube-apiserver",
            "kube-controller-manager": f"{_COMMANDS}/kube-controller-manager",
            "kube-scheduler": f"{_COMMANDS}/kube-scheduler",
            "kubectl": f"{_COMMANDS}/kubectl",
        },
        "6 min",
        # Unstamped, /version says v0.0.0-master and kubectl warns of a version skew.
        {
            f"k8s.io/{library}.{variable}": value
            for library in ("component-base/version", "client-go/pkg/version")
            for variable, value in {
                "gitVersion": "v1.36.3",
                "gitMajor": "1",
                "gitMinor": "36",
                "gitTreeState": "clean",
            }.items()
        },
    ),
    GoModule("kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}, "2 min"),
    GoModule(
        "helm",
        {"helm": "helm.sh/helm/v3/cmd/helm"},
        "75 s",
        # Without the last two, `helm template` renders for Kubernetes 1.20.
        {
            "helm.sh/helm/v3/internal/version.version": "v3.22.0",
            "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor": "1",
            "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor": "36",
        },
    ),
    GoModule(
        "vpa",
        {
            "recommender": f"{_VPA}/recommender",
            "updater": f"{_VPA}/updater",
            "admission-controller": f"{_VPA}/admission-controller",
        },
        "2 min",
    ),
)

# Programs that a KUBEBUILDER_ASSETS directory holds (controller-runtime's envtest).
ENVTEST_PROGRAMS = frozenset({"etcd", "kube-apiserver", "kubectl"})


def module_of(name: str) -> GoModule:
    """Return the module of this name, or the one that builds the program of this name."""
    for module in MODULES:
        if name == module.name or name in module.programs:
            return module
    known = sorted({m.name for m in MODULES} | {p for m in MODULES for p in m.programs})
    raise ValueError(f"no tool is called {name!r}; known are {', '.join(known)}")
