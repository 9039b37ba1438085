package podautoscaler

import (
	"fmt"
	"maps"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	defaulting "k8s.io/kubernetes/pkg/apis/autoscaling/v2"
)

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
		ObjectMeta: metav1.ObjectMeta{Name: hpaName, Namespace: namespace, Generation: generation},
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
