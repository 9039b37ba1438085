package main

import (
	"cmp"
	"context"
	"slices"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	vpa_types "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/checkpoint"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/logic"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/routines"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/util"
	controllerfetcher "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/target/controller_fetcher"
)

var recommender = answers{
	"histogram":                  kind(histogram),
	"container_samples":          kind(containerSamples),
	"recommendation":             kind(recommendationOf),
	"cluster_history":            kind(clusterHistory),
	"aggregate_gc":               kind(aggregateGC),
	"container_policy_defaults":  kind(containerPolicyDefaults),
	"confidence":                 kind(confidence),
	"confidence_multiplier":      kind(confidenceMultiplier),
	"conversion":                 kind(conversion),
	"resource_list":              kind(resourceList),
	"status_conditions":          kind(statusConditions),
	"cpu_integer_post_processor": kind(cpuIntegerPostProcessor),
	"oom_from_pod_update":        kind(oomFromPodUpdate),
	"oom_from_eviction_event":    kind(oomFromEvictionEvent),
}

// windows are the flags of memory's aggregation; nil is their default.
type windows struct {
	Interval *float64 `json:"memory_aggregation_interval_s"`
	Count    *int64   `json:"memory_aggregation_interval_count"`
	Ratio    *float64 `json:"oom_bump_up_ratio"`
	Least    *float64 `json:"oom_min_bump_up_bytes"`
}

func or[T any](given *T, otherwise T) T {
	if given != nil {
		return *given
	}
	return otherwise
}

// use makes them the flags of what is created from now on.
func (w windows) use() {
	interval := model.DefaultMemoryAggregationInterval
	if w.Interval != nil {
		interval = duration(*w.Interval)
	}
	model.InitializeAggregationsConfig(model.NewAggregationsConfig(
		interval, or(w.Count, model.DefaultMemoryAggregationIntervalCount),
		model.DefaultMemoryHistogramDecayHalfLife, model.DefaultCPUHistogramDecayHalfLife,
		or(w.Ratio, model.DefaultOOMBumpUpRatio), or(w.Least, model.DefaultOOMMinBumpUp),
	))
}

// watched is one pod under one VPA.
type watched struct {
	model.ClusterState
	pod model.PodID
}

func watch(phase corev1.PodPhase, containers []string, policy *vpa_types.PodResourcePolicy) watched {
	cluster := watched{model.NewClusterState(0), model.PodID{Namespace: "default", PodName: "pod"}}
	shared := labels.Set{"app": "web"}
	vpa := &vpa_types.VerticalPodAutoscaler{}
	vpa.Namespace, vpa.Name = "default", "web-vpa"
	vpa.Spec.TargetRef = &autoscalingv1.CrossVersionObjectReference{Kind: "Deployment", Name: "web", APIVersion: "apps/v1"}
	vpa.Spec.ResourcePolicy = policy
	if err := cluster.AddOrUpdateVpa(vpa, shared.AsSelector()); err != nil {
		panic(err)
	}
	cluster.AddOrUpdatePod(cluster.pod, shared, phase)
	for _, name := range containers {
		if err := cluster.AddOrUpdateContainer(cluster.container(name), nil); err != nil {
			panic(err)
		}
	}
	return cluster
}

func (w watched) container(name string) model.ContainerID {
	return model.ContainerID{PodID: w.pod, ContainerName: name}
}

func (w watched) vpa() *model.Vpa {
	return w.VPAs()[model.VpaID{Namespace: "default", VpaName: "web-vpa"}]
}

// sample is one op: usage in milli-cores or bytes, or what was requested at an OOM.
type sample struct {
	Op    string    `json:"op"`
	Value int64     `json:"v"`
	Time  time.Time `json:"t"`
}

func (w watched) take(container string, each sample) bool {
	id := w.container(container)
	if each.Op == "oom" {
		return w.RecordOOM(id, each.Time, model.ResourceAmount(each.Value)) == nil
	}
	usage := model.ContainerUsageSample{
		MeasureStart: each.Time, Usage: model.ResourceAmount(each.Value), Resource: model.ResourceName(each.Op),
	}
	return w.AddSample(&model.ContainerUsageSampleWithKey{ContainerUsageSample: usage, Container: id}) == nil
}

// noted is a histogram that tells what it is called with.
type noted struct {
	util.Histogram
	name  string
	calls *[]any
}

func (n noted) note(call string, value, weight float64, at time.Time) {
	*n.calls = append(*n.calls, map[string]any{
		"call": call, "histogram": n.name, "v": value, "w": weight, "t": at.UTC(),
	})
}

func (n noted) AddSample(value, weight float64, at time.Time) {
	n.note("add", value, weight, at)
	n.Histogram.AddSample(value, weight, at)
}

func (n noted) SubtractSample(value, weight float64, at time.Time) {
	n.note("subtract", value, weight, at)
	n.Histogram.SubtractSample(value, weight, at)
}

func containerSamples(in struct {
	windows
	Samples      []sample   `json:"ops"`
	CheckpointAt *time.Time `json:"checkpoint_at"`
}) any {
	in.use()
	cluster := watch(corev1.PodRunning, []string{"app"}, nil)
	state := model.States(cluster.ClusterState)[0]
	cpu, memory := state.AggregateCPUUsage, state.AggregateMemoryPeaks
	calls, accepted := []any{}, []bool{}
	state.AggregateCPUUsage = noted{cpu, "cpu", &calls}
	state.AggregateMemoryPeaks = noted{memory, "memory", &calls}
	for _, each := range in.Samples {
		accepted = append(accepted, cluster.take("app", each))
	}
	// Merging is for histograms of one kind.
	state.AggregateCPUUsage, state.AggregateMemoryPeaks = cpu, memory
	container := cluster.GetContainer(cluster.container("app"))
	read := []float64{0.5, 0.9, 0.95}
	found := map[string]any{
		"accepted":            accepted,
		"histogram_calls":     calls,
		"cpu_percentiles":     percentiles(cpu, read),
		"memory_percentiles":  percentiles(memory, read),
		"total_samples_count": state.TotalSamplesCount,
		"first_sample_start":  stamp(state.FirstSampleStart),
		"last_sample_start":   stamp(state.LastSampleStart),
		"max_memory_peak":     container.GetMaxMemoryPeak(),
		"window_end":          stamp(container.WindowEnd),
	}
	if in.CheckpointAt != nil {
		kept, err := checkpoint.States(cluster.vpa(), cluster.ClusterState, *in.CheckpointAt)["app"].SaveToCheckpoint()
		if err != nil {
			panic(err)
		}
		found["checkpoint"] = map[string]any{
			"cpuHistogram":      savedOf(&kept.CPUHistogram),
			"memoryHistogram":   savedOf(&kept.MemoryHistogram),
			"firstSampleStart":  stamp(kept.FirstSampleStart.Time),
			"lastSampleStart":   stamp(kept.LastSampleStart.Time),
			"totalSamplesCount": kept.TotalSamplesCount,
			"version":           kept.Version,
		}
	}
	return found
}

type series struct {
	Resource string    `json:"resource"`
	Start    time.Time `json:"start"`
	Step     float64   `json:"step_s"`
	Values   []int64   `json:"values"`
	Repeat   *int      `json:"repeat"`
}

type measured struct {
	Name   string   `json:"name"`
	Series []series `json:"series"`
	OOMs   []struct {
		Time      time.Time `json:"t"`
		Requested int64     `json:"requested_memory_bytes"`
	} `json:"ooms"`
	Controlled *[]corev1.ResourceName `json:"controlled_resources"`
}

// samples are those of all series in the order of time, then the OOMs.
func (m measured) samples() []sample {
	found := []sample{}
	for _, each := range m.Series {
		for step := range len(each.Values) * or(each.Repeat, 1) {
			at := each.Start.Add(duration(float64(step) * each.Step))
			found = append(found, sample{each.Resource, each.Values[step%len(each.Values)], at})
		}
	}
	slices.SortStableFunc(found, func(a, b sample) int { return a.Time.Compare(b.Time) })
	for _, each := range m.OOMs {
		found = append(found, sample{"oom", each.Requested, each.Time})
	}
	return found
}

type estimates struct {
	Margin         *float64 `json:"safety_margin_fraction"`
	LeastCPU       *float64 `json:"pod_min_cpu_millicores"`
	LeastMemory    *float64 `json:"pod_min_memory_mb"`
	TargetCPU      *float64 `json:"target_cpu_percentile"`
	LowerCPU       *float64 `json:"lower_bound_cpu_percentile"`
	UpperCPU       *float64 `json:"upper_bound_cpu_percentile"`
	TargetMemory   *float64 `json:"target_memory_percentile"`
	LowerMemory    *float64 `json:"lower_bound_memory_percentile"`
	UpperMemory    *float64 `json:"upper_bound_memory_percentile"`
	CPUInterval    *float64 `json:"confidence_interval_cpu_s"`
	MemoryInterval *float64 `json:"confidence_interval_memory_s"`
}

func (e estimates) config() logic.RecommendationConfig {
	return logic.RecommendationConfig{
		SafetyMarginFraction: or(e.Margin, 0.15),
		PodMinCPUMillicores:  or(e.LeastCPU, 25), PodMinMemoryMb: or(e.LeastMemory, 250),
		TargetCPUPercentile: or(e.TargetCPU, 0.9), TargetMemoryPercentile: or(e.TargetMemory, 0.9),
		LowerBoundCPUPercentile: or(e.LowerCPU, 0.5), LowerBoundMemoryPercentile: or(e.LowerMemory, 0.5),
		UpperBoundCPUPercentile: or(e.UpperCPU, 0.95), UpperBoundMemoryPercentile: or(e.UpperMemory, 0.95),
		ConfidenceIntervalCPU:    duration(or(e.CPUInterval, 86400)),
		ConfidenceIntervalMemory: duration(or(e.MemoryInterval, 86400)),
	}
}

func recommendationOf(in struct {
	Containers  []measured `json:"containers"`
	Config      estimates  `json:"config"`
	Humanize    bool       `json:"humanize_memory"`
	RoundCPU    *int       `json:"round_cpu_millicores"`
	RoundMemory *int       `json:"round_memory_bytes"`
}) any {
	windows{}.use()
	names, policy := []string{}, &vpa_types.PodResourcePolicy{}
	for _, each := range in.Containers {
		names = append(names, each.Name)
		if each.Controlled != nil {
			policy.ContainerPolicies = append(policy.ContainerPolicies, vpa_types.ContainerResourcePolicy{
				ContainerName: each.Name, ControlledResources: each.Controlled,
			})
		}
	}
	cluster := watch(corev1.PodRunning, names, policy)
	for _, each := range in.Containers {
		for _, taken := range each.samples() {
			cluster.take(each.Name, taken)
		}
	}
	config := in.Config.config()
	states := routines.GetContainerNameToAggregateStateMap(cluster.vpa())
	recommended := logic.CreatePodResourceRecommender(config).GetRecommendedPodResources(states)
	amounts, known := map[string]any{}, map[string]float64{}
	for name, each := range recommended {
		amounts[name] = map[string]any{"lowerBound": each.LowerBound, "target": each.Target, "upperBound": each.UpperBound}
		known[name] = max(
			logic.Confidence(states[name], config.ConfidenceIntervalCPU),
			logic.Confidence(states[name], config.ConfidenceIntervalMemory),
		)
	}
	published := logic.MapToListOfRecommendedContainerResources(recommended, logic.RecommendationFormat{
		HumanizeMemory: in.Humanize, RoundCPUMillicores: or(in.RoundCPU, 1), RoundMemoryBytes: or(in.RoundMemory, 1),
	})
	return map[string]any{
		"amounts": amounts, "confidence": known, "containerRecommendations": published.ContainerRecommendations,
	}
}

// owner tells whether the controller of a pod is still there.
type owner bool

func (o owner) FindTopMostWellKnownOrScalable(
	_ context.Context, asked *controllerfetcher.ControllerKeyWithAPIVersion,
) (*controllerfetcher.ControllerKeyWithAPIVersion, error) {
	if o {
		return asked, nil
	}
	return nil, nil
}

func aggregateGC(in struct {
	windows
	Sample    string          `json:"sample"`
	SampleAge float64         `json:"sample_age_s"`
	StateAge  float64         `json:"state_age_s"`
	Phase     corev1.PodPhase `json:"pod_phase"`
	Deleted   bool            `json:"pod_deleted"`
	Owned     bool            `json:"controller_exists"`
}) any {
	in.use()
	now := time.Unix(2_000_000_000, 0)
	cluster := watch(in.Phase, []string{"app"}, nil)
	model.States(cluster.ClusterState)[0].CreationTime = now.Add(-duration(in.StateAge))
	if in.Sample != "none" {
		cluster.take("app", sample{in.Sample, 1000, now.Add(-duration(in.SampleAge))})
	}
	if in.Deleted {
		cluster.DeletePod(cluster.pod)
	}
	cluster.RateLimitedGarbageCollectAggregateCollectionStates(context.Background(), now, owner(in.Owned))
	return map[string]any{"state_deleted": cluster.StateMapSize() == 0}
}

func containerPolicyDefaults(in struct {
	Policy *vpa_types.ContainerResourcePolicy `json:"policy"`
	Gate   bool                               `json:"per_vpa_config_gate"`
}) any {
	windows{}.use()
	gates(map[string]bool{"PerVPAConfig": in.Gate})
	state := model.NewAggregateContainerState()
	state.UpdateFromPolicy(in.Policy)
	return map[string]any{
		"mode":                              state.GetScalingMode(),
		"controlled_resources":              state.GetControlledResources(),
		"memory_aggregation_interval_s":     state.GetMemoryAggregationIntervalDuration().Seconds(),
		"memory_aggregation_interval_count": state.MemoryAggregationIntervalCount,
		"oom_bump_up_ratio":                 state.GetOOMBumpUpRatio(),
		"oom_min_bump_up_bytes":             state.GetOOMMinBumpUp(),
	}
}

// span is a history of which no more than its length is known.
type span struct {
	First    *time.Time `json:"first_sample"`
	Last     *time.Time `json:"last_sample"`
	Count    int        `json:"total_samples_count"`
	Interval float64    `json:"confidence_interval_s"`
}

func (s span) state() *model.AggregateContainerState {
	return &model.AggregateContainerState{
		FirstSampleStart: or(s.First, time.Time{}), LastSampleStart: or(s.Last, time.Time{}), TotalSamplesCount: s.Count,
	}
}

func confidence(in span) any {
	return map[string]any{"confidence": logic.Confidence(in.state(), duration(in.Interval))}
}

func confidenceMultiplier(in struct {
	span
	Multiplier float64              `json:"multiplier"`
	Exponent   float64              `json:"exponent"`
	Base       model.ResourceAmount `json:"base"`
}) any {
	state, interval := in.state(), duration(in.Interval)
	made := logic.WithMemoryConfidenceMultiplier(
		in.Multiplier, in.Exponent, logic.NewConstMemoryEstimator(in.Base), interval,
	)
	return map[string]any{
		"confidence": logic.Confidence(state, interval), "result": made.GetMemoryEstimation(state),
	}
}

func statusConditions(in struct {
	Matched     bool `json:"pods_matched"`
	Recommended bool `json:"has_recommendation"`
}) any {
	vpa := model.NewVpa(model.VpaID{Namespace: "default", VpaName: "web-vpa"}, labels.Everything(), time.Now())
	if in.Recommended {
		vpa.UpdateRecommendation(&vpa_types.RecommendedPodResources{
			ContainerRecommendations: []vpa_types.RecommendedContainerResources{{ContainerName: "app"}},
		})
	}
	vpa.UpdateConditions(in.Matched)
	absent, found := []vpa_types.VerticalPodAutoscalerConditionType{}, []map[string]any{}
	for _, each := range vpa.AsStatus().Conditions {
		shown := map[string]any{"type": each.Type, "status": each.Status}
		if each.Reason != "" {
			shown["reason"] = each.Reason
		}
		found = append(found, shown)
	}
	if !vpa.ConditionActive(vpa_types.NoPodsMatched) {
		absent = append(absent, vpa_types.NoPodsMatched)
	}
	return map[string]any{"conditions": found, "absent": absent}
}

func cpuIntegerPostProcessor(in struct {
	VPA         *vpa_types.VerticalPodAutoscaler   `json:"vpa"`
	Recommended *vpa_types.RecommendedPodResources `json:"recommendation"`
}) any {
	made := (&routines.IntegerCPUPostProcessor{}).Process(in.VPA, in.Recommended)
	slices.SortFunc(made.ContainerRecommendations, func(a, b vpa_types.RecommendedContainerResources) int {
		return cmp.Compare(a.ContainerName, b.ContainerName)
	})
	return map[string]any{"recommendation": made}
}
