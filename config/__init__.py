"""Package data: manifests, rules, dashboards and alerts, read through importlib.resources."""
