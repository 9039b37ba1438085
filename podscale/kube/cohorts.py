"""Objects as rows of columns, grouped so that selectors are evaluated per group.

A cohort is a set of objects of one namespace with equal labels and equal controller
(the pods of one ReplicaSet). Thousands of pods are a few cohorts: a label selector is
evaluated once per cohort, and found through an index of label pairs, never by scanning.
Pure: no I/O, no clock.
"""
