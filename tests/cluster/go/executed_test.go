// Package podautoscaler is the original's; these files call it: the passes of one HPA per line of JSON
// in the form of the case files' kind "reconcile", and one line of what it came to.
package podautoscaler

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	metricsclient "k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
)

func storedEvents(events []timestampedScaleEvent) []stored {
	shown := []stored{}
	for _, each := range events {
		shown = append(shown, stored{each.replicaChange, time.Since(each.timestamp).Seconds(), each.outdated})
	}
	return shown
}

func since(at *metav1.Time) *float64 {
	if at.IsZero() {
		return nil
	}
	age := time.Since(at.Time).Seconds()
	return &age
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func remembered(events []happened) []timestampedScaleEvent {
	list := []timestampedScaleEvent{}
	for _, each := range events {
		list = append(list, timestampedScaleEvent{each.Change, time.Now().Add(-seconds(each.Age)), false})
	}
	return list
}

// started returns a controller with what it remembers of earlier passes.
func (w *world) started() *HorizontalController {
	in := &w.in
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(in.Gates); err != nil {
		panic(err)
	}
	lister := corelisters.NewPodLister(w.pods)
	client := metricsclient.NewRESTMetricsClient(w, customMetrics{w}, externalMetrics{w})
	a := &HorizontalController{
		eventRecorder: w, scaleNamespacer: w, hpaNamespacer: w, mapper: mapper{}, monitor: w,
		tolerance: in.Flags.Tolerance, downscaleStabilisationWindow: seconds(in.Flags.Downscale),
		replicaCalc:     NewReplicaCalculator(client, lister, seconds(in.Flags.Initialization), seconds(in.Flags.Readiness)),
		podLister:       lister,
		recommendations: map[string][]timestampedRecommendation{},
		scaleUpEvents:   map[string][]timestampedScaleEvent{ownKey: remembered(in.ScaleUps)},
		scaleDownEvents: map[string][]timestampedScaleEvent{ownKey: remembered(in.ScaleDowns)},
	}
	others := map[string]labels.Selector{}
	for name, text := range in.OtherSelectors {
		parsed, err := labels.Parse(text)
		if err != nil {
			panic(err)
		}
		others[name] = parsed
	}
	register(a, others)
	if in.Recommendations != nil {
		list := []timestampedRecommendation{}
		for _, each := range *in.Recommendations {
			list = append(list, timestampedRecommendation{each.Replicas, time.Now().Add(-seconds(each.Age))})
		}
		a.recommendations[ownKey] = list
	}
	return a
}

func (w *world) pass(a *HorizontalController) expected {
	w.out = expected{MetricComputations: [][3]string{}, Events: []event{}, CurrentMetrics: []map[string]any{}}
	w.written, w.attempts = nil, 0
	resources := []string{}
	for _, each := range w.in.HPA.Metrics {
		name := each.Resource
		if name == "" {
			name = "cpu"
		}
		resources = append(resources, name)
	}
	listed := []any{}
	for _, each := range w.in.Pods {
		listed = append(listed, each.object(resources))
	}
	if err := w.pods.Replace(listed, ""); err != nil {
		panic(err)
	}
	given := w.hpa()
	status := given.Status
	// What it returns only goes to the log; the result is with the monitor.
	_ = a.reconcileAutoscaler(context.Background(), given, ownKey)
	if w.written != nil {
		status = w.written.Status
	}
	w.out.Current, w.out.Desired = status.CurrentReplicas, status.DesiredReplicas
	w.out.ObservedGeneration = status.ObservedGeneration
	w.out.Conditions = []condition{}
	for _, each := range status.Conditions {
		w.out.Conditions = append(w.out.Conditions, condition{string(each.Type), string(each.Status), each.Reason, each.Message, since(&each.LastTransitionTime)})
	}
	w.out.LastScale = since(status.LastScaleTime)
	for _, each := range status.CurrentMetrics {
		w.out.CurrentMetrics = append(w.out.CurrentMetrics, shownMetric(each))
	}
	w.out.Recommendations = []recommended{}
	for _, each := range a.recommendations[ownKey] {
		w.out.Recommendations = append(w.out.Recommendations, recommended{each.recommendation, time.Since(each.timestamp).Seconds()})
	}
	w.out.ScaleUps, w.out.ScaleDowns = storedEvents(a.scaleUpEvents[ownKey]), storedEvents(a.scaleDownEvents[ownKey])
	if w.written == nil || w.in.Faults.StatusUpdate == "" {
		w.status = &status
	} else {
		w.status = &given.Status
	}
	return w.out
}

// executed returns what the passes of one controller come to: the first, and those that follow.
func executed(in inputs) []expected {
	w := &world{in: in}
	w.pods = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	a := w.started()
	told := []expected{w.pass(a)}
	for _, next := range in.Then {
		time.Sleep(seconds(next.After))
		if w.out.Put != nil {
			w.in.Target.Spec = *w.out.Put
		}
		w.in.Target.Status = w.in.Target.Spec
		w.in.Pods, w.in.Faults = next.Pods, next.Faults
		w.in.ResourceMetrics, w.in.PodMetrics = next.ResourceMetrics, next.PodMetrics
		w.in.ObjectMetric, w.in.ExternalMetric = next.ObjectMetric, next.ExternalMetric
		told = append(told, w.pass(a))
	}
	return told
}

func TestExecuted(t *testing.T) {
	utilruntime.ErrorHandlers = nil
	retry.DefaultRetry.Duration = 0 // the clock stands still
	asked, err := os.Open(os.Getenv("PODSCALE_ASKED"))
	if err != nil {
		t.Fatal(err)
	}
	defer asked.Close()
	told, err := os.Create(os.Getenv("PODSCALE_TOLD"))
	if err != nil {
		t.Fatal(err)
	}
	defer told.Close()
	decoder, encoder := json.NewDecoder(bufio.NewReader(asked)), json.NewEncoder(told)
	encoder.SetEscapeHTML(false)
	for {
		var in inputs
		if err := decoder.Decode(&in); err == io.EOF {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		var out []expected
		synctest.Test(t, func(*testing.T) { out = executed(in) })
		if err := encoder.Encode(out); err != nil {
			t.Fatal(err)
		}
	}
}
