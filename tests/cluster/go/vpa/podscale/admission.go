package main

import (
	"context"
	"encoding/json"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	resource_admission "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller/resource"
	podhandler "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller/resource/pod"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller/resource/pod/patch"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller/resource/pod/recommendation"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller/resource/vpa"
	vpa_types "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/features"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/updater/inplace"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/utils/limitrange"
	vpa_api_util "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/utils/vpa"
)

var admission = answers{
	"admission_patch":   kind(admissionPatch),
	"inplace_patch":     kind(inplacePatch),
	"capping":           kind(capping),
	"limit_range_merge": kind(limitRangeMerge),
	"validate_vpa":      kind(validateVPA),
}

// ranges are the LimitRanges of a namespace, one effective item of each type.
type ranges struct {
	Container *corev1.LimitRangeItem `json:"container_limit_range"`
	Pod       *corev1.LimitRangeItem `json:"pod_limit_range"`
}

func (r ranges) GetContainerLimitRangeItem(string) (*corev1.LimitRangeItem, error) {
	return r.Container, nil
}

func (r ranges) GetPodLimitRangeItem(string) (*corev1.LimitRangeItem, error) {
	return r.Pod, nil
}

// admitted is a pod that the VPA was found for.
type admitted struct {
	ranges
	Pod   corev1.Pod                       `json:"pod"`
	VPA   *vpa_types.VerticalPodAutoscaler `json:"vpa"`
	Boost bool                             `json:"cpu_startup_boost_gate"`
	Most  string                           `json:"max_allowed_cpu_boost"`
	Ready *float64                         `json:"ready_for_s"`
}

func (a *admitted) GetMatchingVPA(context.Context, *corev1.Pod) *vpa_types.VerticalPodAutoscaler {
	return a.VPA
}

func (a *admitted) provider() recommendation.Provider {
	return recommendation.NewProvider(a, vpa_api_util.NewCappingRecommendationProcessor(a))
}

func gates(on map[string]bool) {
	if err := features.MutableFeatureGate.SetFromMap(on); err != nil {
		panic(err)
	}
}

func admissionPatch(in admitted) any {
	gates(map[string]bool{string(features.CPUStartupBoost): in.Boost})
	raw, err := json.Marshal(in.Pod)
	if err != nil {
		panic(err)
	}
	if in.Most == "" {
		in.Most = "0"
	}
	most := resource.QuantityValue{Quantity: resource.MustParse(in.Most)}
	handler := podhandler.NewResourceHandler(podhandler.NewDefaultPreProcessor(), &in, []patch.Calculator{
		patch.NewResourceUpdatesCalculator(in.provider(), most),
		patch.NewObservedContainersCalculator(),
	})
	request := admissionv1.AdmissionRequest{Operation: admissionv1.Create, Namespace: in.Pod.Namespace}
	request.Resource = metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	request.Object.Raw = raw
	patches, _, errs := handler.GetPatches(context.Background(), &request)
	if len(errs) > 0 {
		return map[string]any{"error": errs.ToAggregate().Error()}
	}
	return map[string]any{"patches": patches}
}

func inplacePatch(in admitted) any {
	gates(map[string]bool{string(features.CPUStartupBoost): true})
	if in.Ready != nil {
		since := metav1.NewTime(time.Now().Add(-time.Duration(*in.Ready * float64(time.Second))))
		in.Pod.Status.Conditions = append(in.Pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: since,
		})
	}
	resize, err := inplace.NewResourceInPlaceUpdatesCalculator(in.provider()).CalculatePatches(&in.Pod, in.VPA)
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	annotated := []resource_admission.PatchRecord{}
	for _, each := range []patch.Calculator{inplace.NewInPlaceUpdatedCalculator(), inplace.NewUnboostAnnotationCalculator()} {
		patches, err := each.CalculatePatches(&in.Pod, in.VPA)
		if err != nil {
			return map[string]any{"error": err.Error()}
		}
		annotated = append(annotated, patches...)
	}
	return map[string]any{"resize_patches": resize, "annotation_patches": annotated}
}

func capping(in admitted) any {
	capped, notes, err := vpa_api_util.NewCappingRecommendationProcessor(in).Apply(in.VPA, &in.Pod)
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	if notes == nil {
		notes = vpa_api_util.ContainerToAnnotationsMap{}
	}
	return map[string]any{"recommendation": capped, "annotations": notes}
}

func limitRangeMerge(in struct {
	Ranges []corev1.LimitRange `json:"limit_ranges"`
	Type   corev1.LimitType    `json:"type"`
}) any {
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	indexer := factory.Core().V1().LimitRanges().Informer().GetIndexer()
	for i := range in.Ranges {
		in.Ranges[i].Namespace = "default"
		if err := indexer.Add(&in.Ranges[i]); err != nil {
			panic(err)
		}
	}
	calculator, err := limitrange.NewLimitsRangeCalculator(factory)
	if err != nil {
		panic(err)
	}
	of := calculator.GetContainerLimitRangeItem
	if in.Type == corev1.LimitTypePod {
		of = calculator.GetPodLimitRangeItem
	}
	item, err := of("default")
	if err != nil {
		panic(err)
	}
	return map[string]any{"item": item}
}

func validateVPA(in struct {
	Spec     vpa_types.VerticalPodAutoscalerSpec `json:"spec"`
	Create   bool                                `json:"create"`
	Gates    map[string]bool                     `json:"gates"`
	Existing map[corev1.ResourceName]bool        `json:"existing_unsupported_controlled_resources"`
}) any {
	warnings, errs := vpa.Validated(&vpa_types.VerticalPodAutoscaler{Spec: in.Spec}, vpa.VPAValidationOptions{
		IsVPACreate:                 in.Create,
		AllowInPlace:                in.Gates[string(features.InPlace)],
		AllowCPUStartupBoost:        in.Gates[string(features.CPUStartupBoost)],
		AllowPerVPAConfig:           in.Gates[string(features.PerVPAConfig)],
		ExistingControlledResources: in.Existing,
	})
	found := []map[string]string{}
	for _, each := range errs {
		found = append(found, map[string]string{
			"field": each.Field, "type": each.Type.String(),
		})
	}
	return map[string]any{"errors": found, "warning_count": len(warnings)}
}
