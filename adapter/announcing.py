"""Events about the rules file. They belong to our own pod: no other object is about it."""

from collections.abc import Callable

from podscale.kube.events import Recorder
from podscale.kube.leadership.leading import own_pod


def announcing(recorder: Recorder) -> Callable[[str, str], None]:
    """Return what makes an event of a reason and a message; without our pod's name there are
    none."""
    about = own_pod()
    if about is None:
        return lambda _reason, _message: None

    def tell(reason: str, message: str) -> None:
        recorder.event(about, "Warning" if "Not" in reason else "Normal", reason, message)

    return tell
