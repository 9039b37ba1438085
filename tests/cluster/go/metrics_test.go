package podautoscaler

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	customapi "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	externalapi "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
	metricsapi "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	resourceclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"
	customclient "k8s.io/metrics/pkg/client/custom_metrics"
	externalclient "k8s.io/metrics/pkg/client/external_metrics"
)

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
