"""The stages of a metric's way, in order: tokens of ``details.causes`` and of the doctor."""

from enum import StrEnum

from msgspec import Struct


class Stage(StrEnum):
    """Where a metric was lost; the meanings stand in ``cases/doctor.yaml``."""

    CONFIG_INVALID = "ConfigInvalid"
    PROMETHEUS_UNREACHABLE = "PrometheusUnreachable"
    SERIES_QUERY_INVALID = "SeriesQueryInvalid"
    NO_SERIES = "NoSeries"
    FILTERED_OUT = "FilteredOut"
    NO_RESOURCE_LABEL = "NoResourceLabel"
    LABEL_NOT_A_RESOURCE = "LabelNotAResource"
    NOT_NAMESPACED = "NotNamespaced"
    NAME_MISMATCH = "NameMismatch"
    SHADOWED_BY_OTHER_RULE = "ShadowedByOtherRule"
    QUERY_INVALID = "QueryInvalid"
    EMPTY_RESULT = "EmptyResult"
    GROUP_BY_LOST = "GroupByLost"
    OBJECT_MISMATCH = "ObjectMismatch"
    NOT_A_NUMBER = "NotANumber"
    STALE = "Stale"
    API_SERVICE_ELSEWHERE = "APIServiceElsewhere"
    FORBIDDEN = "Forbidden"
    HEALTHY = "Healthy"


class Finding(Struct, frozen=True):
    """Where one metric was lost, for a person."""

    stage: Stage
    message: str
    rule: str = ""  # "rules[3]"; "": no single rule is to blame

    @property
    def text(self) -> str:
        """Stage and message, as reports have them."""
        return f"{self.stage}: {self.message}"
