"""``podscale hpa``: the controller with kube-controller-manager's flags; ``hpa eval`` offline."""

from podscale.cli.commands.hpa_eval import evaluate
from podscale.cli.commands.processes import hpa
from podscale.cli.flag_program import with_subcommands

command = with_subcommands(
    hpa, {"eval": evaluate}, "Scale by HorizontalPodAutoscalers; ``hpa eval`` decides offline."
)
