module podscale.io/bench/httpyard

go 1.22
