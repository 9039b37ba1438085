package podautoscaler

import (
	"context"
	"errors"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	autoscalingclient "k8s.io/client-go/kubernetes/typed/autoscaling/v2"
	scaleclient "k8s.io/client-go/scale"
)

func (w *world) Event(_ runtime.Object, kind, reason, message string) {
	w.out.Events = append(w.out.Events, event{kind, reason, message})
}

func (w *world) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	w.Event(object, kind, reason, fmt.Sprintf(format, args...))
}

func (w *world) AnnotatedEventf(object runtime.Object, _ map[string]string, kind, reason, format string, args ...any) {
	w.Eventf(object, kind, reason, format, args...)
}

type hpas struct {
	autoscalingclient.HorizontalPodAutoscalerInterface
	*world
}

func (w *world) HorizontalPodAutoscalers(string) autoscalingclient.HorizontalPodAutoscalerInterface {
	return hpas{world: w}
}

func (h hpas) UpdateStatus(_ context.Context, hpa *autoscalingv2.HorizontalPodAutoscaler, _ metav1.UpdateOptions) (*autoscalingv2.HorizontalPodAutoscaler, error) {
	h.written = hpa.DeepCopy()
	h.out.StatusWritten = true
	if text := h.in.Faults.StatusUpdate; text != "" {
		return nil, errors.New(text)
	}
	return hpa, nil
}

// What the client of scales does to every answer.
var converter = scaleclient.NewScaleConverter()

type scales struct {
	scaleclient.ScaleInterface
	*world
}

func (w *world) Scales(string) scaleclient.ScaleInterface { return scales{world: w} }

func (s scales) Get(context.Context, schema.GroupResource, string, metav1.GetOptions) (*autoscalingv1.Scale, error) {
	if text := s.in.Faults.ScaleGet; text != "" {
		return nil, errors.New(text)
	}
	selector := ""
	if s.in.Target.Selector != nil {
		selector = *s.in.Target.Selector
	}
	converted, err := converter.ConvertToVersion(&autoscalingv1.Scale{
		TypeMeta:   metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"},
		ObjectMeta: metav1.ObjectMeta{Name: target, Namespace: namespace},
		Spec:       autoscalingv1.ScaleSpec{Replicas: s.in.Target.Spec},
		Status:     autoscalingv1.ScaleStatus{Replicas: s.in.Target.Status, Selector: selector},
	}, autoscalingv1.SchemeGroupVersion)
	if err != nil { // as the client of scales says it, which keeps this step to itself
		return nil, fmt.Errorf("received an object from a /scale endpoint which was not convertible to autoscaling Scale: %v", err)
	}
	return converted.(*autoscalingv1.Scale), nil
}

func (s scales) Update(_ context.Context, resource schema.GroupResource, scale *autoscalingv1.Scale, _ metav1.UpdateOptions) (*autoscalingv1.Scale, error) {
	s.attempts++
	if text := s.in.Faults.ScaleUpdate; text != "" {
		return nil, errors.New(text)
	}
	if s.attempts <= s.in.Faults.Conflicts {
		return nil, k8serrors.NewConflict(resource, target, errors.New("the object has been modified"))
	}
	sent := scale.Spec.Replicas
	s.out.Put = &sent
	return scale, nil
}

type mapper struct{ apimeta.RESTMapper }

func (mapper) RESTMappings(kind schema.GroupKind, _ ...string) ([]*apimeta.RESTMapping, error) {
	plural := map[string]string{
		"Deployment.apps": "deployments", "ReplicaSet.apps": "replicasets",
		"StatefulSet.apps": "statefulsets", "ReplicationController": "replicationcontrollers",
	}[kind.String()]
	if plural == "" {
		return nil, &apimeta.NoKindMatchError{GroupKind: kind}
	}
	return []*apimeta.RESTMapping{{
		Resource: schema.GroupVersionResource{Group: kind.Group, Version: "v1", Resource: plural},
	}}, nil
}
