"""Rules as objects: MetricRules of a namespace, and ClusterMetricRules beside the file's rules."""
