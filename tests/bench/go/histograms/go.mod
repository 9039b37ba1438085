module podscale/tests/bench/histograms

go 1.23
