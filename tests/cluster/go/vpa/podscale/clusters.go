package main

import (
	"context"
	"encoding/json"
	"math"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	vpa_types "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/checkpoint"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/logic"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/routines"
)

// clusterStep is one thing that happens to a recommender's cluster.
type clusterStep struct {
	Op         string    `json:"op"`
	Pod        string    `json:"pod"`
	Version    string    `json:"version"`
	Containers []string  `json:"containers"`
	Container  string    `json:"container"`
	CPU        int64     `json:"cpu"`
	Memory     int64     `json:"memory"`
	Time       time.Time `json:"t"`
}

// shop is a cluster whose pods are all of one application.
type shop struct {
	watched
	selectors map[string]map[string]string
	pods      map[string]clusterStep
}

func (s *shop) open() {
	s.ClusterState = model.NewClusterState(0)
	for name, selected := range s.selectors {
		vpa := &vpa_types.VerticalPodAutoscaler{}
		vpa.Namespace, vpa.Name = "default", name
		vpa.Spec.TargetRef = &autoscalingv1.CrossVersionObjectReference{Kind: "Deployment", Name: name, APIVersion: "apps/v1"}
		if err := s.AddOrUpdateVpa(vpa, labels.Set(selected).AsSelector()); err != nil {
			panic(err)
		}
	}
}

func (s *shop) named(name string) *model.Vpa {
	return s.VPAs()[model.VpaID{Namespace: "default", VpaName: name}]
}

func (s *shop) put(pod clusterStep) {
	s.pods[pod.Pod] = pod
	s.pod.PodName = pod.Pod
	s.AddOrUpdatePod(s.pod, labels.Set{"app": "web", "version": pod.Version}, corev1.PodRunning)
	for _, name := range pod.Containers {
		if err := s.AddOrUpdateContainer(s.container(name), nil); err != nil {
			panic(err)
		}
	}
}

func (s *shop) checkpoints(name string, at time.Time) map[string]*vpa_types.VerticalPodAutoscalerCheckpointStatus {
	kept := map[string]*vpa_types.VerticalPodAutoscalerCheckpointStatus{}
	for container, state := range checkpoint.States(s.named(name), s.ClusterState, at) {
		status, err := state.SaveToCheckpoint()
		if err != nil {
			panic(err)
		}
		kept[container] = status
	}
	return kept
}

// restart leaves of what was learned what an API server has kept of the checkpoints.
func (s *shop) restart(at time.Time) {
	kept := map[string]map[string]*vpa_types.VerticalPodAutoscalerCheckpointStatus{}
	for name := range s.selectors {
		kept[name] = s.checkpoints(name, at)
	}
	s.open()
	for name, containers := range kept {
		for container, status := range containers {
			written, err := json.Marshal(status)
			if err != nil {
				panic(err)
			}
			read := &vpa_types.VerticalPodAutoscalerCheckpointStatus{}
			if err := json.Unmarshal(written, read); err != nil {
				panic(err)
			}
			state := model.NewAggregateContainerState()
			if err := state.LoadFromCheckpoint(read); err != nil {
				panic(err)
			}
			s.named(name).ContainersInitialAggregateState[container] = state
		}
	}
	for _, pod := range s.pods {
		s.put(pod)
	}
}

func (s *shop) step(each clusterStep) (taken []bool) {
	s.pod.PodName = each.Pod
	switch each.Op {
	case "pod":
		s.put(each)
	case "gone":
		delete(s.pods, each.Pod)
		s.DeletePod(s.pod)
	case "usage":
		taken = append(taken,
			s.take(each.Container, sample{"cpu", each.CPU, each.Time}),
			s.take(each.Container, sample{"memory", each.Memory, each.Time}))
	case "oom":
		taken = append(taken, s.take(each.Container, sample{"oom", each.Memory, each.Time}))
	case "restart":
		s.restart(each.Time)
	case "collect":
		s.RateLimitedGarbageCollectAggregateCollectionStates(context.Background(), each.Time, owner(false))
	default:
		panic("no step " + each.Op)
	}
	return taken
}

// weighedAt is a histogram with its weight at a time instead of at its reference, which merging
// moves in the histograms of other VPAs too.
func weighedAt(at time.Time, made vpa_types.HistogramCheckpoint) map[string]any {
	age := made.ReferenceTimestamp.Sub(at)
	total := made.TotalWeight * math.Exp2(age.Hours()/24)
	return map[string]any{"bucket_weights": made.BucketWeights, "total_weight": total}
}

// clusterHistory tells what is known in the end: the checkpoints, and the amounts of containers
// with samples of both resources.
func clusterHistory(in struct {
	Selectors map[string]map[string]string `json:"selectors"`
	Steps     []clusterStep                `json:"steps"`
	At        time.Time                    `json:"at"`
}) any {
	windows{}.use()
	cluster := &shop{watched{pod: model.PodID{Namespace: "default"}}, in.Selectors, map[string]clusterStep{}}
	cluster.open()
	taken := []bool{}
	for _, each := range in.Steps {
		taken = append(taken, cluster.step(each)...)
	}
	config := estimates{}.config()
	found := map[string]any{}
	for name := range in.Selectors {
		states := routines.GetContainerNameToAggregateStateMap(cluster.named(name))
		recommended := logic.CreatePodResourceRecommender(config).GetRecommendedPodResources(states)
		containers := map[string]map[string]any{}
		for container, status := range cluster.checkpoints(name, in.At) {
			containers[container] = map[string]any{
				"cpuHistogram":      weighedAt(in.At, status.CPUHistogram),
				"memoryHistogram":   weighedAt(in.At, status.MemoryHistogram),
				"firstSampleStart":  stamp(status.FirstSampleStart.Time),
				"lastSampleStart":   stamp(status.LastSampleStart.Time),
				"totalSamplesCount": status.TotalSamplesCount,
			}
			if state := states[container]; state.TotalSamplesCount > 0 && !state.AggregateMemoryPeaks.IsEmpty() {
				amounts := recommended[container]
				containers[container]["amounts"] = map[string]any{
					"lowerBound": amounts.LowerBound, "target": amounts.Target, "upperBound": amounts.UpperBound,
				}
				containers[container]["confidence"] = logic.Confidence(state, config.ConfidenceIntervalCPU)
			}
		}
		found[name] = containers
	}
	return map[string]any{"taken": taken, "vpas": found}
}
