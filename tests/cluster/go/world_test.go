package podautoscaler

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/client-go/tools/cache"
)

type world struct {
	in       inputs
	out      expected
	pods     cache.Indexer
	status   *autoscalingv2.HorizontalPodAutoscalerStatus // after an earlier pass
	written  *autoscalingv2.HorizontalPodAutoscaler
	attempts int
}
