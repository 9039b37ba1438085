"""Rivals of one HPA among selectors given as text."""

from collections.abc import Mapping

from hpa.cluster.overlapping_hpas import OverlappingHpas
from podscale.core.selectors.selector import parse


def rivals_of(
    name: str, selectors: Mapping[str, str], *labels: Mapping[str, str]
) -> tuple[str, ...]:
    rivals = OverlappingHpas()
    for each, text in selectors.items():
        rivals.add("shop", each, parse(text))
    return rivals.of("shop", name, labels)
