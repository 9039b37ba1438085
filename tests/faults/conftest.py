"""What thousands of runs in one process need."""

import gc
import logging

import pytest
import structlog


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log nothing, and leave the collector as it is."""
    # A term begins with a full collection and a freeze, once in a process's life: thousands
    # of terms in one process would keep every world that ever was.
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "collect", lambda *_: 0)
    made = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=made)
