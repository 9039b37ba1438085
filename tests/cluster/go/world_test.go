package podautoscaler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	autoscalingclient "k8s.io/client-go/kubernetes/typed/autoscaling/v2"
	scaleclient "k8s.io/client-go/scale"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/monitor"
	customapi "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	externalapi "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
	metricsapi "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	resourceclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"
	customclient "k8s.io/metrics/pkg/client/custom_metrics"
	externalclient "k8s.io/metrics/pkg/client/external_metrics"
)

type world struct {
	in       inputs
	out      expected
	pods     cache.Indexer
	status   *autoscalingv2.HorizontalPodAutoscalerStatus // after an earlier pass
	written  *autoscalingv2.HorizontalPodAutoscaler
	attempts int
	sent     int32
}

// The API server's part.

func (w *world) Event(_ runtime.Object, kind, reason, message string) {
	w.out.Events = append(w.out.Events, event{kind, reason, message})
}

func (w *world) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	w.Event(object, kind, reason, fmt.Sprintf(format, args...))
}

func (w *world) AnnotatedEventf(object runtime.Object, _ map[string]string, kind, reason, format string, args ...any) {
	w.Eventf(object, kind, reason, format, args...)
}

type hpas struct {
	autoscalingclient.HorizontalPodAutoscalerInterface
	*world
}

func (w *world) HorizontalPodAutoscalers(string) autoscalingclient.HorizontalPodAutoscalerInterface {
	return hpas{world: w}
}

func (h hpas) UpdateStatus(_ context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler, _ metav1.UpdateOptions) (*autoscalingv2.HorizontalPodAutoscaler, error) {
	h.written = hpa.DeepCopy()
	h.out.StatusWritten = true
	if text := h.in.Faults.StatusUpdate; text != "" {
		return nil, errors.New(text)
	}
	return hpa, nil
}

type scales struct {
	scaleclient.ScaleInterface
	*world
}

func (w *world) Scales(string) scaleclient.ScaleInterface { return scales{world: w} }

func (s scales) Get(context.Context, schema.GroupResource, string, metav1.GetOptions) (*autoscalingv1.Scale, error) {
	if text := s.in.Faults.ScaleGet; text != "" {
		return nil, errors.New(text)
	}
	selector := ""
	if s.in.Target.Selector != nil {
		selector = *s.in.Target.Selector
	}
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: target, Namespace: namespace},
		Spec:       autoscalingv1.ScaleSpec{Replicas: s.in.Target.Spec},
		Status:     autoscalingv1.ScaleStatus{Replicas: s.in.Target.Status, Selector: selector},
	}, nil
}

func (s scales) Update(_ context.Context, resource schema.GroupResource, scale *autoscalingv1.Scale, _ metav1.UpdateOptions) (*autoscalingv1.Scale, error) {
	s.attempts++
	if text := s.in.Faults.ScaleUpdate; text != "" {
		return nil, errors.New(text)
	}
	if s.attempts <= s.in.Faults.Conflicts {
		return nil, k8serrors.NewConflict(resource, target, errors.New("the object has been modified"))
	}
	s.out.ScaleUpdated, s.sent = true, scale.Spec.Replicas
	return scale, nil
}

type mapper struct{ apimeta.RESTMapper }

func (mapper) RESTMappings(kind schema.GroupKind, _ ...string) ([]*apimeta.RESTMapping, error) {
	plural := map[string]string{
		"Deployment.apps": "deployments", "ReplicaSet.apps": "replicasets",
		"StatefulSet.apps": "statefulsets", "ReplicationController": "replicationcontrollers",
	}[kind.String()]
	if plural == "" {
		return nil, &apimeta.NoKindMatchError{GroupKind: kind}
	}
	return []*apimeta.RESTMapping{{
		Resource: schema.GroupVersionResource{Group: kind.Group, Version: "v1", Resource: plural},
	}}, nil
}

// The metrics APIs' part.

type podMetricses struct {
	resourceclient.PodMetricsInterface
	*world
}

func (w *world) PodMetricses(string) resourceclient.PodMetricsInterface {
	return podMetricses{world: w}
}

func milli(amount int64) resource.Quantity {
	return *resource.NewMilliQuantity(amount, resource.DecimalSI)
}

func (p podMetricses) List(context.Context, metav1.ListOptions) (*metricsapi.PodMetricsList, error) {
	if text := p.in.Faults.Resource; text != "" {
		return nil, errors.New(text)
	}
	list := &metricsapi.PodMetricsList{}
	for _, each := range p.in.ResourceMetrics {
		window := 60.0
		if each.Window != nil {
			window = *each.Window
		}
		item := metricsapi.PodMetrics{
			ObjectMeta: metav1.ObjectMeta{Name: each.Pod, Namespace: namespace},
			Timestamp:  metav1.NewTime(each.Age.time()),
			Window:     metav1.Duration{Duration: time.Duration(window * float64(time.Second))},
		}
		for _, name := range slices.Sorted(maps.Keys(each.Usage)) {
			usage := v1.ResourceList{}
			if each.Usage[name] != nil {
				usage[v1.ResourceCPU] = milli(*each.Usage[name])
				usage[v1.ResourceMemory] = milli(*each.Usage[name])
			}
			item.Containers = append(item.Containers, metricsapi.ContainerMetrics{Name: name, Usage: usage})
		}
		list.Items = append(list.Items, item)
	}
	return list, nil
}

type customMetrics struct{ *world }

func (w customMetrics) RootScopedMetrics() customclient.MetricsInterface       { return w }
func (w customMetrics) NamespacedMetrics(string) customclient.MetricsInterface { return w }

func (w customMetrics) GetForObject(schema.GroupKind, string, string, labels.Selector) (*customapi.MetricValue, error) {
	if text := w.in.Faults.Custom; text != "" {
		return nil, errors.New(text)
	}
	return &customapi.MetricValue{Value: milli(*w.in.ObjectMetric), Timestamp: metav1.Now()}, nil
}

func (w customMetrics) GetForObjects(schema.GroupKind, labels.Selector, string, labels.Selector) (*customapi.MetricValueList, error) {
	if text := w.in.Faults.Custom; text != "" {
		return nil, errors.New(text)
	}
	list := &customapi.MetricValueList{}
	for _, each := range w.in.PodMetrics {
		list.Items = append(list.Items, customapi.MetricValue{
			DescribedObject: v1.ObjectReference{Kind: "Pod", Name: each.Pod, Namespace: namespace},
			Value:           milli(each.Value),
			Timestamp:       metav1.NewTime(each.Age.time()),
		})
	}
	return list, nil
}

type externalMetrics struct{ *world }

func (w externalMetrics) NamespacedMetrics(string) externalclient.MetricsInterface { return w }

func (w externalMetrics) List(string, labels.Selector) (*externalapi.ExternalMetricValueList, error) {
	if text := w.in.Faults.External; text != "" {
		return nil, errors.New(text)
	}
	list := &externalapi.ExternalMetricValueList{}
	for _, each := range w.in.ExternalMetric {
		list.Items = append(list.Items, externalapi.ExternalMetricValue{Value: milli(each), Timestamp: metav1.Now()})
	}
	return list, nil
}

// The monitor's part.

func (w *world) ObserveReconciliationResult(action monitor.ActionLabel, failure monitor.ErrorLabel, _ time.Duration) {
	w.out.Reconciliation = map[string]string{"action": string(action), "error": string(failure)}
}

func (w *world) ObserveMetricComputationResult(action monitor.ActionLabel, failure monitor.ErrorLabel, _ time.Duration, kind autoscalingv2.MetricSourceType) {
	w.out.MetricComputations[string(kind)] = [2]string{string(action), string(failure)}
}

func (w *world) ObserveHPARequeueSkips(string, string)        {}
func (w *world) ObserveHPAAddition()                          {}
func (w *world) ObserveHPADeletion()                          {}
func (w *world) ObserveDesiredReplicas(string, string, int32) {}
