package priority

import (
	vpa_types "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
)

// Queued shows to our program which pods passed the filter, by name.
func Queued(of *UpdatePriorityCalculator) map[string]PodPriority {
	found := map[string]PodPriority{}
	for _, each := range of.pods {
		found[each.pod.Name] = each.priority
	}
	return found
}

// HasLower shows to our program what the package keeps to itself.
func HasLower(last, next *vpa_types.RecommendedPodResources) bool {
	return hasLowerResourceRecommendation(last, next)
}
