package podautoscaler

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	defaulting "k8s.io/kubernetes/pkg/apis/autoscaling/v2"
)

const (
	namespace = "test-namespace"
	hpaName   = "test-hpa"
	target    = "web"
	ownKey    = namespace + "/" + hpaName
)

// An age in seconds, "zero" or "absent".
type age struct {
	seconds  float64
	isZero   bool
	isAbsent bool
}

func (a *age) UnmarshalJSON(data []byte) error {
	switch string(data) {
	case `"zero"`:
		a.isZero = true
		return nil
	case `"absent"`:
		a.isAbsent = true
		return nil
	}
	return json.Unmarshal(data, &a.seconds)
}

func (a *age) time() time.Time {
	if a == nil || a.isZero {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(a.seconds * float64(time.Second)))
}

type container struct {
	Name          string `json:"name"`
	Request       *int64 `json:"request"`
	RestartPolicy string `json:"restart_policy"`
}

type pod struct {
	Name            string            `json:"name"`
	Requests        map[string]*int64 `json:"requests"`
	Containers      []container       `json:"containers"`
	InitContainers  []container       `json:"init_containers"`
	PodLevel        *int64            `json:"pod_level_request"`
	PodLevelOther   map[string]int64  `json:"pod_level_other_requests"`
	Overhead        *int64            `json:"overhead"`
	Phase           string            `json:"phase"`
	Ready           any               `json:"ready"`
	Start           *age              `json:"start_age_s"`
	ReadyTransition *age              `json:"ready_transition_age_s"`
	Deleted         bool              `json:"deleted"`
	Labels          map[string]string `json:"labels"`
}

type amounts struct {
	Pod    string            `json:"pod"`
	Usage  map[string]*int64 `json:"usage"`
	Value  int64             `json:"value"`
	Age    *age              `json:"age_s"`
	Window *float64          `json:"window_s"`
}

type metricTarget struct {
	Type               string `json:"type"`
	Value              *int64 `json:"value"`
	AverageValue       *int64 `json:"averageValue"`
	AverageUtilization *int32 `json:"averageUtilization"`
}

type metricSpec struct {
	Type      string             `json:"type"`
	Resource  string             `json:"resource"`
	Metric    string             `json:"metric"`
	Container string             `json:"container"`
	Selector  *map[string]string `json:"selector"`
	Described *struct {
		Kind       string `json:"kind"`
		Name       string `json:"name"`
		APIVersion string `json:"apiVersion"`
	} `json:"describedObject"`
	Target metricTarget `json:"target"`
}

type rules struct {
	Window    *int32   `json:"stabilizationWindowSeconds"`
	Select    *string  `json:"selectPolicy"`
	Tolerance *float64 `json:"tolerance"`
	Policies  []struct {
		Type   string `json:"type"`
		Value  int32  `json:"value"`
		Period int32  `json:"periodSeconds"`
	} `json:"policies"`
}

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

type happened struct {
	Change int32   `json:"change"`
	Age    float64 `json:"age_s"`
}

type recommended struct {
	Replicas int32   `json:"replicas"`
	Age      float64 `json:"age_s"`
}

type inputs struct {
	HPA struct {
		Min      *int32  `json:"minReplicas"`
		Max      int32   `json:"maxReplicas"`
		Version  *string `json:"target_api_version"`
		Behavior *struct {
			Up   *rules `json:"scaleUp"`
			Down *rules `json:"scaleDown"`
		} `json:"behavior"`
		Metrics []metricSpec `json:"metrics"`
	} `json:"hpa"`
	Gates map[string]bool `json:"gates"`
	Flags struct {
		Tolerance      float64 `json:"tolerance"`
		Downscale      float64 `json:"downscale_stabilization_s"`
		Initialization float64 `json:"cpu_initialization_period_s"`
		Readiness      float64 `json:"initial_readiness_delay_s"`
	} `json:"flags"`
	Target struct {
		Kind     string  `json:"kind"`
		Spec     int32   `json:"spec_replicas"`
		Status   int32   `json:"status_replicas"`
		Selector *string `json:"selector"`
	} `json:"target"`
	Before struct {
		Current    int32       `json:"currentReplicas"`
		Desired    int32       `json:"desiredReplicas"`
		Conditions []condition `json:"conditions"`
		LastScale  *age        `json:"lastScaleTime_age_s"`
	} `json:"status_before"`
	Recommendations *[]recommended    `json:"recommendations"`
	Pods            []pod             `json:"pods"`
	ResourceMetrics []amounts         `json:"resource_metrics"`
	PodMetrics      []amounts         `json:"custom_pod_metrics"`
	ObjectMetric    *int64            `json:"object_metric"`
	ExternalMetric  []int64           `json:"external_metric"`
	ScaleUps        []happened        `json:"scale_up_events"`
	ScaleDowns      []happened        `json:"scale_down_events"`
	OtherSelectors  map[string]string `json:"other_hpa_selectors"`
	Then            []inputs          `json:"then"`    // pods, answers and faults of later passes
	After           float64           `json:"after_s"` // of a later pass: since the one before
	Faults          struct {
		ScaleGet     string `json:"scale_get"`
		ScaleUpdate  string `json:"scale_update"`
		Conflicts    int    `json:"scale_update_conflicts"`
		StatusUpdate string `json:"status_update"`
		Resource     string `json:"resource_metrics"`
		Custom       string `json:"custom_metrics"`
		External     string `json:"external_metrics"`
	} `json:"faults"`
}

type event struct {
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

type stored struct {
	Change   int32   `json:"change"`
	Age      float64 `json:"age_s"`
	Outdated bool    `json:"outdated"`
}

type expected struct {
	Desired            int32                `json:"desired_replicas"`
	ScaleUpdated       bool                 `json:"scale_updated"`
	Conditions         []condition          `json:"conditions"`
	Reconciliation     map[string]string    `json:"reconciliation"`
	MetricComputations map[string][2]string `json:"metric_computations"`
	Events             []event              `json:"events"`
	CurrentMetrics     []map[string]any     `json:"current_metrics"`
	Recommendations    []int32              `json:"stored_recommendations"`
	ScaleUps           []stored             `json:"scale_ups"`
	ScaleDowns         []stored             `json:"scale_downs"`
	StatusWritten      bool                 `json:"status_written"`
}

func requested(amount *int64, resources []string) v1.ResourceList {
	list := v1.ResourceList{}
	if amount != nil {
		for _, each := range resources {
			list[v1.ResourceName(each)] = milli(*amount)
		}
	}
	return list
}

func (p *pod) object(resources []string) *v1.Pod {
	made := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: namespace, Labels: p.Labels}}
	if p.Labels == nil {
		made.Labels = map[string]string{"name": "test-pod"}
	}
	if p.Deleted {
		now := metav1.Now()
		made.DeletionTimestamp = &now
	}
	for _, name := range slices.Sorted(maps.Keys(p.Requests)) {
		p.Containers = append(p.Containers, container{Name: name, Request: p.Requests[name]})
	}
	of := func(each container) v1.Container {
		made := v1.Container{Name: each.Name, Resources: v1.ResourceRequirements{Requests: requested(each.Request, resources)}}
		if each.RestartPolicy != "" {
			policy := v1.ContainerRestartPolicy(each.RestartPolicy)
			made.RestartPolicy = &policy
		}
		return made
	}
	for _, each := range p.Containers {
		made.Spec.Containers = append(made.Spec.Containers, of(each))
	}
	for _, each := range p.InitContainers {
		made.Spec.InitContainers = append(made.Spec.InitContainers, of(each))
	}
	if p.PodLevel != nil || p.PodLevelOther != nil {
		level := requested(p.PodLevel, resources)
		for name, amount := range p.PodLevelOther {
			level[v1.ResourceName(name)] = milli(amount)
		}
		made.Spec.Resources = &v1.ResourceRequirements{Requests: level}
	}
	made.Spec.Overhead = requested(p.Overhead, resources)
	made.Status.Phase = v1.PodRunning
	if p.Phase != "" {
		made.Status.Phase = v1.PodPhase(p.Phase)
	}
	if p.Start == nil || !p.Start.isAbsent {
		start := metav1.NewTime(p.Start.time())
		made.Status.StartTime = &start
	}
	ready := v1.ConditionTrue
	switch p.Ready {
	case false:
		ready = v1.ConditionFalse
	case "unknown":
		ready = v1.ConditionUnknown
	case "absent":
		return made
	}
	made.Status.Conditions = []v1.PodCondition{{
		Type: v1.PodReady, Status: ready, LastTransitionTime: metav1.NewTime(p.ReadyTransition.time()),
	}}
	return made
}

func quantity(amount *int64) *resource.Quantity {
	if amount == nil {
		return nil
	}
	made := milli(*amount)
	return &made
}

func (m *metricSpec) object() autoscalingv2.MetricSpec {
	aim := autoscalingv2.MetricTarget{
		Type:               autoscalingv2.MetricTargetType(m.Target.Type),
		Value:              quantity(m.Target.Value),
		AverageValue:       quantity(m.Target.AverageValue),
		AverageUtilization: m.Target.AverageUtilization,
	}
	named := autoscalingv2.MetricIdentifier{Name: m.Metric}
	if m.Selector != nil {
		named.Selector = &metav1.LabelSelector{MatchLabels: *m.Selector}
		if len(*m.Selector) == 0 {
			named.Selector = &metav1.LabelSelector{}
		}
	}
	made := autoscalingv2.MetricSpec{Type: autoscalingv2.MetricSourceType(m.Type)}
	switch made.Type {
	case autoscalingv2.ResourceMetricSourceType:
		made.Resource = &autoscalingv2.ResourceMetricSource{Name: v1.ResourceName(m.Resource), Target: aim}
	case autoscalingv2.ContainerResourceMetricSourceType:
		made.ContainerResource = &autoscalingv2.ContainerResourceMetricSource{Name: v1.ResourceName(m.Resource), Container: m.Container, Target: aim}
	case autoscalingv2.PodsMetricSourceType:
		made.Pods = &autoscalingv2.PodsMetricSource{Metric: named, Target: aim}
	case autoscalingv2.ObjectMetricSourceType:
		made.Object = &autoscalingv2.ObjectMetricSource{Metric: named, Target: aim, DescribedObject: autoscalingv2.CrossVersionObjectReference{
			Kind: m.Described.Kind, Name: m.Described.Name, APIVersion: m.Described.APIVersion,
		}}
	case autoscalingv2.ExternalMetricSourceType:
		made.External = &autoscalingv2.ExternalMetricSource{Metric: named, Target: aim}
	}
	return made
}

func (r *rules) object() *autoscalingv2.HPAScalingRules {
	if r == nil {
		return nil
	}
	made := &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: r.Window}
	if r.Select != nil {
		chosen := autoscalingv2.ScalingPolicySelect(*r.Select)
		made.SelectPolicy = &chosen
	}
	for _, each := range r.Policies {
		made.Policies = append(made.Policies, autoscalingv2.HPAScalingPolicy{
			Type: autoscalingv2.HPAScalingPolicyType(each.Type), Value: each.Value, PeriodSeconds: each.Period,
		})
	}
	if r.Tolerance != nil {
		tolerance := resource.MustParse(fmt.Sprintf("%v", *r.Tolerance))
		made.Tolerance = &tolerance
	}
	return made
}

func (w *world) hpa() *autoscalingv2.HorizontalPodAutoscaler {
	in := &w.in
	version := "apps/v1"
	if in.Target.Kind == "ReplicationController" {
		version = "v1"
	}
	if in.HPA.Version != nil {
		version = *in.HPA.Version
	}
	made := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: hpaName, Namespace: namespace},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: in.Target.Kind, Name: target, APIVersion: version},
			MinReplicas:    in.HPA.Min,
			MaxReplicas:    in.HPA.Max,
		},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{
			CurrentReplicas: in.Before.Current, DesiredReplicas: in.Before.Desired,
		},
	}
	for _, each := range in.HPA.Metrics {
		made.Spec.Metrics = append(made.Spec.Metrics, each.object())
	}
	if behavior := in.HPA.Behavior; behavior != nil {
		made.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: behavior.Up.object(), ScaleDown: behavior.Down.object()}
	}
	for _, each := range in.Before.Conditions {
		made.Status.Conditions = append(made.Status.Conditions, autoscalingv2.HorizontalPodAutoscalerCondition{
			Type: autoscalingv2.HorizontalPodAutoscalerConditionType(each.Type), Status: v1.ConditionStatus(each.Status),
			Reason: each.Reason, Message: each.Message,
		})
	}
	if in.Before.LastScale != nil {
		at := metav1.NewTime(in.Before.LastScale.time())
		made.Status.LastScaleTime = &at
	}
	if w.status != nil {
		made.Status = *w.status.DeepCopy()
	}
	defaulting.SetDefaults_HorizontalPodAutoscaler(made)
	return made
}

func shownValue(current autoscalingv2.MetricValueStatus) map[string]any {
	shown := map[string]any{}
	if current.Value != nil {
		shown["value"] = current.Value.MilliValue()
	}
	if current.AverageValue != nil {
		shown["averageValue"] = current.AverageValue.MilliValue()
	}
	if current.AverageUtilization != nil {
		shown["averageUtilization"] = *current.AverageUtilization
	}
	return shown
}

func shownMetric(m autoscalingv2.MetricStatus) map[string]any {
	shown := map[string]any{"type": string(m.Type)}
	switch {
	case m.Resource != nil:
		shown["resource"], shown["current"] = string(m.Resource.Name), shownValue(m.Resource.Current)
	case m.ContainerResource != nil:
		shown["resource"], shown["container"] = string(m.ContainerResource.Name), m.ContainerResource.Container
		shown["current"] = shownValue(m.ContainerResource.Current)
	case m.Pods != nil:
		shown["metric"], shown["current"] = m.Pods.Metric.Name, shownValue(m.Pods.Current)
	case m.Object != nil:
		shown["metric"], shown["current"] = m.Object.Metric.Name, shownValue(m.Object.Current)
	case m.External != nil:
		shown["metric"], shown["current"] = m.External.Metric.Name, shownValue(m.External.Current)
	}
	return shown
}
