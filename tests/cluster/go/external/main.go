// An external metrics adapter that is not podscale's: the library under KEDA's adapter, serving what
// a file says. Tests put it behind podscale.
package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	external "k8s.io/metrics/pkg/apis/external_metrics"

	"sigs.k8s.io/custom-metrics-apiserver/pkg/cmd"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/provider"
)

// values reads metric -> quantity from its file at every request.
type values struct{ file string }

func (v *values) read() map[string]string {
	found := map[string]string{}
	text, err := os.ReadFile(v.file)
	if err != nil || json.Unmarshal(text, &found) != nil {
		return nil
	}
	return found
}

func (v *values) GetExternalMetric(
	_ context.Context, _ string, selector labels.Selector, info provider.ExternalMetricInfo,
) (*external.ExternalMetricValueList, error) {
	amount, known := v.read()[info.Metric]
	if !known {
		return nil, apierrors.NewNotFound(external.Resource("externalmetrics"), info.Metric)
	}
	return &external.ExternalMetricValueList{Items: []external.ExternalMetricValue{{
		MetricName:   info.Metric,
		MetricLabels: map[string]string{"selector": selector.String()},
		Timestamp:    metav1.Now(),
		Value:        resource.MustParse(amount),
	}}}, nil
}

func (v *values) ListAllExternalMetrics() []provider.ExternalMetricInfo {
	listed := []provider.ExternalMetricInfo{}
	for name := range v.read() {
		// As KEDA does, some are served and not listed.
		if !strings.HasPrefix(name, "s0-") {
			listed = append(listed, provider.ExternalMetricInfo{Metric: name})
		}
	}
	return listed
}

func main() {
	adapter := &cmd.AdapterBase{Name: "external-adapter"}
	served := &values{}
	adapter.Flags().StringVar(&served.file, "values", "", "JSON: metric -> quantity")
	if err := adapter.Flags().Parse(os.Args); err != nil {
		klog.Fatal(err)
	}
	adapter.WithExternalMetrics(served)
	if err := adapter.Run(context.Background()); err != nil {
		klog.Fatal(err)
	}
}
