package restriction

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	clocks "k8s.io/utils/clock/testing"

	resource_admission "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller/resource"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller/resource/pod/patch"
	vpa_types "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/updater/utils"
)

// Controller is the name of the only controller that exists.
const Controller = "rc"

// Group is the pods of one controller in one loop, under a clock that is set.
type Group struct {
	Evictions PodsEvictionRestriction
	InPlace   PodsInPlaceRestriction
	Clock     *clocks.FakeClock
	VPA       *vpa_types.VerticalPodAutoscaler
}

// NewGroup starts a loop; seen is when resizes were first seen, by pod. Every call of the API succeeds.
func NewGroup(kind string, configured int32, least int, tolerance float64, skip bool, pods []*corev1.Pod, vpa *vpa_types.VerticalPodAutoscaler, seen map[string]time.Time) *Group {
	client := &fake.Clientset{}
	client.AddReactor("*", "*", func(testing.Action) (bool, runtime.Object, error) { return true, &corev1.Pod{}, nil })
	informers := informers.NewSharedInformerFactory(client, 0)
	meta := metav1.ObjectMeta{Namespace: "default", Name: Controller}
	var err error
	switch controllerKind(kind) {
	case replicationController:
		err = informers.Core().V1().ReplicationControllers().Informer().GetStore().Add(
			&corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Replicas: &configured}})
	case replicaSet:
		err = informers.Apps().V1().ReplicaSets().Informer().GetStore().Add(
			&appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: &configured}})
	case statefulSet:
		err = informers.Apps().V1().StatefulSets().Informer().GetStore().Add(
			&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: &configured}})
	case daemonSet:
		err = informers.Apps().V1().DaemonSets().Informer().GetStore().Add(
			&appsv1.DaemonSet{ObjectMeta: meta, Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: configured}})
	}
	if err != nil {
		panic(err)
	}
	clock := clocks.NewFakeClock(time.Time{})
	factory := &PodsRestrictionFactoryImpl{
		client:                      client,
		informerFactory:             informers,
		minReplicas:                 least,
		evictionToleranceFraction:   tolerance,
		clock:                       clock,
		lastInPlaceAttemptTimeMap:   seen,
		patchCalculators:            []patch.Calculator{resizing{}},
		inPlaceSkipDisruptionBudget: skip,
	}
	stats, creators, err := factory.GetCreatorMaps(pods, vpa)
	if err != nil {
		panic(err)
	}
	return &Group{
		Evictions: factory.NewPodsEvictionRestriction(stats, creators),
		InPlace:   factory.NewPodsInPlaceRestriction(stats, creators),
		Clock:     clock,
		VPA:       vpa,
	}
}

// Evict returns whether the pod was evicted.
func (g *Group) Evict(pod *corev1.Pod) bool {
	return g.Evictions.Evict(pod, g.VPA, &record.FakeRecorder{}) == nil
}

// Resize returns whether the pod was resized.
func (g *Group) Resize(pod *corev1.Pod) bool {
	return g.InPlace.InPlaceUpdate(pod, g.VPA, &record.FakeRecorder{}) == nil
}

// ResizeStatus shows to our program what the package keeps to itself.
func ResizeStatus(pod *corev1.Pod) utils.ResizeStatus {
	return getResizeStatus(pod)
}

// resizing always has something to resize.
type resizing struct{}

func (resizing) CalculatePatches(*corev1.Pod, *vpa_types.VerticalPodAutoscaler) ([]resource_admission.PatchRecord, error) {
	return []resource_admission.PatchRecord{patch.GetPatchInitializingEmptyResources(0)}, nil
}

func (resizing) PatchResourceTarget() patch.PatchResourceTarget { return patch.Resize }
