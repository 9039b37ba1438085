package podautoscaler

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"runtime"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	metricsclient "k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
)

// answers are those of one pass, decoded beforehand: what asks for them takes them in turn.
type answers struct {
	pods   []metricsclient.PodMetricsInfo
	values [][]int64
	at     time.Time
}

func (p *answers) taken() (metricsclient.PodMetricsInfo, time.Time, error) {
	first := p.pods[0]
	p.pods = p.pods[1:]
	return first, p.at, nil
}

func (p *answers) GetResourceMetric(context.Context, v1.ResourceName, string, labels.Selector, string) (metricsclient.PodMetricsInfo, time.Time, error) {
	return p.taken()
}

func (p *answers) GetRawMetric(string, string, labels.Selector, labels.Selector) (metricsclient.PodMetricsInfo, time.Time, error) {
	return p.taken()
}

func (p *answers) GetObjectMetric(string, string, *autoscalingv2.CrossVersionObjectReference, labels.Selector) (int64, time.Time, error) {
	panic("no pass that is timed asks for an object")
}

func (p *answers) GetExternalMetric(string, string, labels.Selector) ([]int64, time.Time, error) {
	first := p.values[0]
	p.values = p.values[1:]
	return first, p.at, nil
}

// prepare asks the fakes of w, through the original's client, for what the next pass will.
func (p *answers) prepare(w *world) {
	client := metricsclient.NewRESTMetricsClient(w, customMetrics{w}, externalMetrics{w})
	p.pods, p.values = nil, nil
	for _, each := range w.in.HPA.Metrics {
		var err error
		var pods metricsclient.PodMetricsInfo
		var values []int64
		switch each.Type {
		case "Resource":
			pods, p.at, err = client.GetResourceMetric(context.Background(), v1.ResourceName(each.Resource), namespace, labels.Everything(), "")
		case "Pods":
			pods, p.at, err = client.GetRawMetric(each.Metric, namespace, labels.Everything(), labels.Everything())
		case "External":
			values, p.at, err = client.GetExternalMetric(each.Metric, namespace, labels.Everything())
			p.values = append(p.values, values)
		}
		if err != nil {
			panic(err)
		}
		if pods != nil {
			p.pods = append(p.pods, pods)
		}
	}
}

type timed struct {
	world      *world
	controller *HorizontalController
	answers    *answers
	hpa        *autoscalingv2.HorizontalPodAutoscaler
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	of := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return of(usage.Utime) + of(usage.Stime)
}

// TestTimed decides passes of HPAs side by side, and tells the CPU seconds of the decisions alone: objects
// and answers are made before each round of them, a collection ends before it begins.
func TestTimed(t *testing.T) {
	utilruntime.ErrorHandlers = nil
	file, err := os.Open(os.Getenv("PODSCALE_ASKED"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var all []inputs
	for decoder := json.NewDecoder(bufio.NewReader(file)); ; {
		var in inputs
		if err := decoder.Decode(&in); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, in)
	}
	spent, desired := []float64{}, []int64{}
	synctest.Test(t, func(*testing.T) {
		hpas := make([]*timed, len(all))
		for i, in := range all {
			w := &world{in: in}
			w.pods = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
			each := &timed{world: w, controller: w.started(), answers: &answers{}}
			each.controller.replicaCalc = NewReplicaCalculator(each.answers, each.controller.podLister, seconds(in.Flags.Initialization), seconds(in.Flags.Readiness))
			hpas[i] = each
		}
		for round := 0; round <= len(all[0].Then); round++ {
			for i, each := range hpas {
				w := each.world
				if round > 0 {
					next := all[i].Then[round-1]
					w.in.Pods, w.in.ResourceMetrics, w.in.PodMetrics, w.in.ExternalMetric = next.Pods, next.ResourceMetrics, next.PodMetrics, next.ExternalMetric
				}
				w.out, w.written = expected{}, nil
				listed := []any{}
				for _, each := range w.in.Pods {
					listed = append(listed, each.object([]string{"cpu"}))
				}
				if err := w.pods.Replace(listed, ""); err != nil {
					t.Fatal(err)
				}
				each.hpa = w.hpa()
				each.answers.prepare(w)
			}
			runtime.GC()
			began := cpuSeconds()
			for _, each := range hpas {
				_ = each.controller.reconcileAutoscaler(context.Background(), each.hpa, ownKey)
			}
			spent = append(spent, cpuSeconds()-began)
			sum := int64(0)
			for _, each := range hpas {
				if each.world.written != nil {
					each.world.status = &each.world.written.Status
				}
				if each.world.out.Put != nil {
					t.Fatal("a pass that is timed scales")
				}
				sum += int64(each.world.status.DesiredReplicas)
			}
			desired = append(desired, sum)
			time.Sleep(15 * time.Second)
		}
	})
	told, err := json.Marshal(map[string]any{"cpu_s": spent, "desired": desired})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(os.Getenv("PODSCALE_TOLD"), told, 0o600); err != nil {
		t.Fatal(err)
	}
}
