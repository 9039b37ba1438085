package logic

import (
	"time"

	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"
)

// Confidence shows to our program what the package keeps to itself.
func Confidence(of *model.AggregateContainerState, interval time.Duration) float64 {
	return getConfidence(of, interval)
}
