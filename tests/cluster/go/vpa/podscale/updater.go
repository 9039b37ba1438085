package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	resource_admission "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller/resource"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller/resource/pod/patch"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller/resource/vpa"
	vpa_types "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/features"
	controllerfetcher "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/target/controller_fetcher"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/updater/inplace"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/updater/priority"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/updater/restriction"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/updater/utils"
	resourcehelpers "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/utils/resources"
	vpa_api_util "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/utils/vpa"
)

var updater = answers{
	"update_priority":          kind(updatePriority),
	"update_queue":             kind(updateQueue),
	"eviction_requirements":    kind(evictionRequirements),
	"has_lower_recommendation": kind(hasLowerRecommendation),
	"effective_resources":      kind(effectiveResources),
	"disruption_sequence":      kind(disruptionSequence),
	"disruption_group":         kind(disruptionGroup),
	"can_in_place":             kind(canInPlace),
	"can_in_place_status":      kind(canInPlaceStatus),
	"resize_status":            kind(resizeStatus),
	"non_disruptive_resize":    kind(nonDisruptiveResize),
	"boost_expiry":             kind(boostExpiry),
	"inplace_resource_patch":   kind(inplaceResourcePatch),
	"startup_boost_patch":      kind(startupBoostPatch),
	"match_vpa_for_pod":        kind(matchVPAForPod),
}

// moment is a time as YAML or its reader in Python writes it.
type moment struct{ time.Time }

func (m *moment) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return err
	}
	var err error
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05Z07:00"} {
		if m.Time, err = time.Parse(layout, text); err == nil {
			return nil
		}
	}
	return err
}

func shownPriority(found priority.PodPriority) any {
	return map[string]any{
		"outside_recommended_range": found.OutsideRecommendedRange,
		"scale_up":                  found.ScaleUp,
		"resource_diff":             found.ResourceDiff,
	}
}

func updatePriority(in struct {
	Pod corev1.Pod                      `json:"pod"`
	VPA vpa_types.VerticalPodAutoscaler `json:"vpa"`
}) any {
	return shownPriority(priority.NewProcessor().GetUpdatePriority(&in.Pod, &in.VPA, in.VPA.Status.Recommendation))
}

func seconds(given *float64, otherwise time.Duration) time.Duration {
	if given == nil {
		return otherwise
	}
	return time.Duration(*given * float64(time.Second))
}

func updateQueue(in struct {
	ranges
	VPA       vpa_types.VerticalPodAutoscaler                  `json:"vpa"`
	Pods      []*corev1.Pod                                    `json:"pods"`
	Now       moment                                           `json:"now"`
	Threshold *float64                                         `json:"pod_update_threshold"`
	Lifetime  *float64                                         `json:"in_recommendation_bounds_eviction_lifetime_threshold_s"`
	AfterOOM  *float64                                         `json:"evict_after_oom_threshold_s"`
	PerVPA    bool                                             `json:"per_vpa_config_gate"`
	Refused   map[types.UID]*vpa_types.RecommendedPodResources `json:"infeasible_attempts_by_pod_uid"`
}) any {
	gates(map[string]bool{string(features.PerVPAConfig): in.PerVPA})
	config := priority.UpdateConfig{
		MinChangePriority:          0.1,
		PodLifetimeUpdateThreshold: seconds(in.Lifetime, 12*time.Hour),
		EvictAfterOOMThreshold:     seconds(in.AfterOOM, 10*time.Minute),
	}
	if in.Threshold != nil {
		config.MinChangePriority = *in.Threshold
	}
	calculator := priority.NewUpdatePriorityCalculator(
		&in.VPA, config, vpa_api_util.NewCappingRecommendationProcessor(in), priority.NewProcessor())
	for _, pod := range in.Pods {
		calculator.AddPod(pod, in.Now.Time, in.Refused)
	}
	queued := map[string]any{}
	for name, found := range priority.Queued(&calculator) {
		queued[name] = shownPriority(found)
	}
	required := priority.NewScalingDirectionPodEvictionAdmission()
	required.LoopInit(in.Pods, map[*vpa_types.VerticalPodAutoscaler][]*corev1.Pod{&in.VPA: in.Pods})
	order := []string{}
	for _, pod := range calculator.GetSortedPods(required) {
		order = append(order, pod.Name)
	}
	return map[string]any{"queued_priorities": queued, "update_order": order}
}

func evictionRequirements(in struct {
	Pod            corev1.Pod                         `json:"pod"`
	Recommendation *vpa_types.RecommendedPodResources `json:"recommendation"`
	Requirements   []*vpa_types.EvictionRequirement   `json:"eviction_requirements"`
}) any {
	of := vpa_types.VerticalPodAutoscaler{}
	if in.Requirements != nil {
		of.Spec.UpdatePolicy = &vpa_types.PodUpdatePolicy{EvictionRequirements: in.Requirements}
	}
	admission := priority.NewScalingDirectionPodEvictionAdmission()
	pods := []*corev1.Pod{&in.Pod}
	admission.LoopInit(pods, map[*vpa_types.VerticalPodAutoscaler][]*corev1.Pod{&of: pods})
	return map[string]any{"admit": admission.Admit(&in.Pod, in.Recommendation)}
}

func hasLowerRecommendation(in struct {
	Last *vpa_types.RecommendedPodResources `json:"last_attempt"`
	New  *vpa_types.RecommendedPodResources `json:"new"`
}) any {
	found := priority.HasLower(in.Last, in.New)
	if found != resourcehelpers.RecommendationHasLowerResource(in.Last, in.New) {
		panic("the queue and the resize differ")
	}
	return map[string]any{"result": found}
}

func effectiveResources(in struct {
	Pod       corev1.Pod `json:"pod"`
	Container string     `json:"container"`
}) any {
	requests, limits := resourcehelpers.ContainerRequestsAndLimits(in.Container, &in.Pod)
	for _, container := range in.Pod.Spec.Containers {
		if container.Name != in.Container {
			continue
		}
		// The cases show what is not written of a container that exists as empty.
		if requests == nil {
			requests = corev1.ResourceList{}
		}
		if limits == nil {
			limits = corev1.ResourceList{}
		}
	}
	return map[string]any{"requests": requests, "limits": limits}
}

// limits are the flags and the controller that a group's budget is made of.
type limits struct {
	Owner      string   `json:"owner_kind"`
	Configured int32    `json:"configured_replicas"`
	Least      *int     `json:"min_replicas_flag"`
	OfVPA      *int32   `json:"vpa_min_replicas"`
	Tolerance  *float64 `json:"eviction_tolerance"`
	Skip       bool     `json:"in_place_skip_disruption_budget"`
}

func (l limits) group(pods []*corev1.Pod, mode vpa_types.UpdateMode, seen map[string]time.Time) *restriction.Group {
	least, tolerance := 2, 0.5
	if l.Least != nil {
		least = *l.Least
	}
	if l.Tolerance != nil {
		tolerance = *l.Tolerance
	}
	if l.Owner == "" {
		l.Owner = "ReplicationController"
	}
	return restriction.NewGroup(l.Owner, l.Configured, least, tolerance, l.Skip, pods, asked(mode, l.OfVPA), seen)
}

// asked is a VPA of that mode with a recommendation.
func asked(mode vpa_types.UpdateMode, least *int32) *vpa_types.VerticalPodAutoscaler {
	found := &vpa_types.VerticalPodAutoscaler{}
	found.Spec.UpdatePolicy = &vpa_types.PodUpdatePolicy{UpdateMode: &mode, MinReplicas: least}
	found.Status.Recommendation = &vpa_types.RecommendedPodResources{}
	return found
}

func owned(name, kind string) *corev1.Pod {
	yes := true
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace = name, "default"
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: restriction.Controller, Controller: &yes}}
	pod.Spec.Containers = []corev1.Container{{Name: "c"}}
	return pod
}

func disruptionSequence(in struct {
	limits
	Mode    vpa_types.UpdateMode `json:"update_mode"`
	InPlace bool                 `json:"in_place_gate"`
	Pods    []struct {
		Phase     corev1.PodPhase      `json:"phase"`
		Owner     string               `json:"owner"`
		Restarts  bool                 `json:"restart_on_resize"`
		Condition *corev1.PodCondition `json:"resize_condition"`
		Boosted   bool                 `json:"boosted"`
	} `json:"pods"`
	Ops []struct {
		Op  string  `json:"op"`
		Pod int     `json:"pod"`
		At  float64 `json:"at_s"`
	} `json:"ops"`
}) any {
	gates(map[string]bool{string(features.InPlace): in.InPlace})
	pods := []*corev1.Pod{}
	for i, each := range in.Pods {
		pod := owned(string(rune('a'+i)), in.Owner)
		pod.Status.Phase = each.Phase
		if each.Owner == "none" {
			pod.OwnerReferences = nil
		}
		if each.Restarts {
			pod.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{
				{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer},
			}
		}
		if each.Condition != nil {
			pod.Status.Conditions = []corev1.PodCondition{*each.Condition}
		}
		if each.Boosted {
			pod.Annotations = map[string]string{"vpaCpuStartupBoost/c": ""}
		}
		pods = append(pods, pod)
	}
	group := in.group(pods, in.Mode, map[string]time.Time{})
	results := []any{}
	for _, op := range in.Ops {
		group.Clock.SetTime(time.Unix(0, int64(op.At*float64(time.Second))))
		pod := pods[op.Pod]
		switch op.Op {
		case "can_evict":
			results = append(results, group.Evictions.CanEvict(pod))
		case "evict":
			results = append(results, group.Evict(pod))
		case "can_in_place":
			results = append(results, group.InPlace.CanInPlaceUpdate(pod, group.VPA, nil))
		case "in_place":
			results = append(results, group.Resize(pod))
		default:
			panic(op.Op)
		}
	}
	return map[string]any{"results": results}
}

func disruptionGroup(in struct {
	limits
	Mode vpa_types.UpdateMode `json:"update_mode"`
	Pods []*corev1.Pod        `json:"pods"`
	Now  moment               `json:"now"`
}) any {
	gates(map[string]bool{string(features.InPlace): true})
	group := in.group(in.Pods, in.Mode, map[string]time.Time{})
	group.Clock.SetTime(in.Now.Time)
	decisions, actions := []any{}, []bool{}
	resizes := in.Mode == vpa_types.UpdateModeInPlace || in.Mode == vpa_types.UpdateModeInPlaceOrRecreate
	for _, pod := range in.Pods {
		if resizes {
			decisions = append(decisions, group.InPlace.CanInPlaceUpdate(pod, group.VPA, nil))
		} else {
			decisions = append(decisions, group.Evictions.CanEvict(pod))
		}
	}
	for _, pod := range in.Pods {
		if resizes {
			actions = append(actions, group.Resize(pod))
		} else {
			actions = append(actions, group.Evict(pod))
		}
	}
	return map[string]any{"decisions": decisions, "actions_succeed": actions}
}

func canInPlace(in struct {
	limits
	VPA      vpa_types.VerticalPodAutoscaler                  `json:"vpa"`
	Mode     vpa_types.UpdateMode                             `json:"group_update_mode"`
	Pods     []*corev1.Pod                                    `json:"pods"`
	Selected int                                              `json:"selected_pod"`
	Last     moment                                           `json:"last_in_place_attempt"`
	Now      moment                                           `json:"now"`
	Refused  map[types.UID]*vpa_types.RecommendedPodResources `json:"infeasible_attempts_by_pod_uid"`
}) any {
	gates(map[string]bool{string(features.InPlace): true, string(features.CPUStartupBoost): true})
	pod := in.Pods[in.Selected]
	// The cases leave an empty recommendation out; those whose pod has a uid say themselves what is recommended.
	if in.VPA.Status.Recommendation == nil && pod.UID == "" {
		in.VPA.Status.Recommendation = &vpa_types.RecommendedPodResources{}
	}
	group := in.group(in.Pods, in.Mode, map[string]time.Time{pod.Namespace + "/" + pod.Name: in.Last.Time})
	group.Clock.SetTime(in.Now.Time)
	return map[string]any{
		"decision":    group.InPlace.CanInPlaceUpdate(pod, &in.VPA, in.Refused),
		"evictable":   group.Evictions.CanEvict(pod),
		"unboostable": group.InPlace.CanUnboost(pod, &in.VPA),
	}
}

func canInPlaceStatus(in struct {
	Mode       vpa_types.UpdateMode  `json:"update_mode"`
	Conditions []corev1.PodCondition `json:"conditions"`
	Last       moment                `json:"last_in_place_attempt"`
	Now        moment                `json:"now"`
}) any {
	gates(map[string]bool{string(features.InPlace): true})
	pods := []*corev1.Pod{}
	for _, name := range []string{"a", "b", "c"} {
		pods = append(pods, owned(name, "ReplicationController"))
	}
	pods[0].Status.Conditions = in.Conditions
	group := limits{Configured: 3}.group(pods, in.Mode, map[string]time.Time{"default/a": in.Last.Time})
	group.Clock.SetTime(in.Now.Time)
	return map[string]any{"decision": group.InPlace.CanInPlaceUpdate(pods[0], group.VPA, nil)}
}

func resizeStatus(in struct {
	Conditions []corev1.PodCondition `json:"conditions"`
}) any {
	pod := corev1.Pod{Status: corev1.PodStatus{Conditions: in.Conditions}}
	return map[string]any{"status": restriction.ResizeStatus(&pod)}
}

func nonDisruptiveResize(in struct {
	Pod corev1.Pod `json:"pod"`
}) any {
	return map[string]any{"result": utils.IsNonDisruptiveResize(&in.Pod)}
}

func boostExpiry(in struct {
	Annotations map[string]string `json:"annotations"`
	Ready       *struct {
		Status corev1.ConditionStatus `json:"status"`
		Age    any                    `json:"age_s"`
	} `json:"ready_condition"`
	Boost    *vpa_types.StartupBoost             `json:"startup_boost"`
	Policies []vpa_types.ContainerResourcePolicy `json:"container_policies"`
}) any {
	pod := corev1.Pod{}
	pod.Annotations = in.Annotations
	if in.Ready != nil {
		ready := corev1.PodCondition{Type: corev1.PodReady, Status: in.Ready.Status}
		if age, known := in.Ready.Age.(float64); known {
			ready.LastTransitionTime = readySince(age)
		}
		pod.Status.Conditions = []corev1.PodCondition{ready}
	}
	of := vpa_types.VerticalPodAutoscaler{}
	of.Spec.StartupBoost = in.Boost
	of.Spec.ResourcePolicy = &vpa_types.PodResourcePolicy{ContainerPolicies: in.Policies}
	expired := vpa_api_util.GetExpiredStartupCPUBoostAnnotations(&pod, &of)
	if expired == nil {
		expired = []string{}
	}
	return map[string]any{"expired": expired}
}

func readySince(age float64) metav1.Time {
	return metav1.NewTime(time.Now().Add(-time.Duration(age * float64(time.Second))))
}

// computed is a pod whose containers' resources are given.
type computed struct {
	Pod         corev1.Pod                      `json:"pod"`
	VPA         vpa_types.VerticalPodAutoscaler `json:"vpa"`
	Amounts     []corev1.ResourceRequirements   `json:"container_resources"`
	Annotations map[string][]string             `json:"container_annotations"`
	Error       bool                            `json:"provider_error"`
	ReadyFor    *float64                        `json:"pod_ready_for_s"`
	Boost       bool                            `json:"cpu_startup_boost_gate"`
	Most        string                          `json:"max_allowed_cpu_boost"`
}

func (c *computed) GetContainersResourcesForPod(*corev1.Pod, *vpa_types.VerticalPodAutoscaler) ([]vpa_api_util.ContainerResources, vpa_api_util.ContainerToAnnotationsMap, error) {
	if c.Error {
		return nil, nil, errors.New("provider")
	}
	found := []vpa_api_util.ContainerResources{}
	for _, each := range c.Amounts {
		found = append(found, vpa_api_util.ContainerResources{Requests: each.Requests, Limits: each.Limits})
	}
	return found, c.Annotations, nil
}

func (c *computed) patched(by patch.Calculator) any {
	patches, err := by.CalculatePatches(&c.Pod, &c.VPA)
	if err != nil {
		return map[string]any{"error": true, "patches": []resource_admission.PatchRecord{}}
	}
	return map[string]any{"error": false, "patches": patches}
}

func inplaceResourcePatch(in computed) any {
	gates(map[string]bool{string(features.CPUStartupBoost): true})
	if in.ReadyFor != nil {
		in.Pod.Status.Conditions = append(in.Pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: readySince(*in.ReadyFor),
		})
	}
	return in.patched(inplace.NewResourceInPlaceUpdatesCalculator(&in))
}

func startupBoostPatch(in computed) any {
	gates(map[string]bool{string(features.CPUStartupBoost): in.Boost})
	most := resource.QuantityValue{Quantity: resource.MustParse(in.Most)}
	return in.patched(patch.NewResourceUpdatesCalculator(&in, most))
}

// selected is the selector that every target has.
type selected struct{ labels.Selector }

func (s selected) Fetch(context.Context, *vpa_types.VerticalPodAutoscaler) (labels.Selector, error) {
	return s.Selector, nil
}

// topmost takes the direct controller of a pod for the topmost.
type topmost struct{}

func (topmost) FindTopMostWellKnownOrScalable(_ context.Context, key *controllerfetcher.ControllerKeyWithAPIVersion) (*controllerfetcher.ControllerKeyWithAPIVersion, error) {
	return key, nil
}

func matchVPAForPod(in struct {
	Pod      corev1.Pod                         `json:"pod"`
	VPAs     []*vpa_types.VerticalPodAutoscaler `json:"vpas"`
	Selector string                             `json:"label_selector_of_target"`
}) any {
	selector, err := labels.Parse(in.Selector)
	if err != nil {
		panic(err)
	}
	known := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{
		vpa_api_util.TargetRefIndex: vpa_api_util.TargetRefIndexFunc,
	})
	for _, each := range in.VPAs {
		if err := known.Add(each); err != nil {
			panic(err)
		}
	}
	found := vpa.NewMatcher(known, selected{selector}, topmost{}).GetMatchingVPA(context.Background(), &in.Pod)
	if found == nil {
		return map[string]any{"vpa": nil}
	}
	return map[string]any{"vpa": found.Name}
}
