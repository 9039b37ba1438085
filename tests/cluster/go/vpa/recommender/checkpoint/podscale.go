package checkpoint

import (
	"time"

	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"
)

// States shows to our program what is saved of a VPA's containers at a time.
func States(vpa *model.Vpa, cluster model.ClusterState, now time.Time) map[string]*model.AggregateContainerState {
	return buildAggregateContainerStateMap(vpa, cluster, now)
}
