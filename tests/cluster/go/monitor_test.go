package podautoscaler

import (
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/monitor"
)

func (w *world) ObserveReconciliationResult(action monitor.ActionLabel, failure monitor.ErrorLabel, _ time.Duration) {
	w.out.Reconciliation = [2]string{string(action), string(failure)}
}

func (w *world) ObserveMetricComputationResult(action monitor.ActionLabel, failure monitor.ErrorLabel, _ time.Duration, kind autoscalingv2.MetricSourceType) {
	w.out.MetricComputations = append(w.out.MetricComputations, [3]string{string(kind), string(action), string(failure)})
}

func (w *world) ObserveHPARequeueSkips(string, string)          {}
func (w *world) ObserveHPAAddition()                            {}
func (w *world) ObserveHPADeletion()                            {}
func (w *world) ObserveDesiredReplicas(_, _ string, size int32) { w.out.Gauge = &size }
