module podscale/tests/tools/helm

go 1.26.0

tool (
	helm.sh/helm/v3/cmd/helm
)

require helm.sh/helm/v3 v3.22.0
