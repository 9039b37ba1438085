"""``--service`` is read once, for whoever serves behind a Service."""

import pytest

from podscale.kube.objects.cluster import ServiceName
from podscale.serving.certificates.keeper import service_of
from podscale.serving.flags import FlagError


@pytest.mark.parametrize("text", ["adapter", "/adapter", "podscale/", "a/b/c"])
def test_a_service_has_a_namespace_and_a_name(text):
    with pytest.raises(FlagError, match="NAMESPACE/NAME"):
        service_of(text)


def test_a_service_is_read_and_shown_alike():
    assert service_of("podscale/adapter") == ServiceName("podscale", "adapter")
    assert str(service_of("podscale/adapter")) == "podscale/adapter"
    assert service_of("") is None
