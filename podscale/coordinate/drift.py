"""Where an HPA and a VPA go that know nothing of each other, on one resource. Pure."""

_BAND = 0.1  # of the limit, in which the HPA's tolerance keeps it


def drift(percent: int, used: int | None, sized: int | None) -> str:
    """Return a clause on where an HPA at ``percent`` of requests ends beside a VPA that gives pods
    ``sized``, of which one uses ``used`` on average; None: not known.

    The VPA gives 1.15 times the 90th percentile, so that utilization comes to
    ``used / sized`` whatever there is of pods, and the HPA never reaches another target.
    """
    if not used or not sized:
        return (
            f"together they drift to many small pods where {percent} % is below "
            "mean(u) / (1.15 · p90(u)) of the usage u of a pod, and to few large ones above"
        )
    limit = 100.0 * used / sized
    share = f"a pod uses {used}m on average, {limit:.0f} % of the {sized}m that the VPA gives it"
    if abs(percent - limit) <= _BAND * limit:
        return f"{share}, which the target of {percent} % is near: they drift slowly, if at all"
    where = "many small pods" if percent < limit else "few large pods"
    return f"{share}, and the target is {percent} %: together they drift to {where}"
