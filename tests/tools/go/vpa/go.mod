module podscale/tests/tools/vpa

go 1.26.0

tool (
	k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender
	k8s.io/autoscaler/vertical-pod-autoscaler/pkg/updater
	k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller
)

require k8s.io/autoscaler/vertical-pod-autoscaler v1.8.1
