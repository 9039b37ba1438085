package main

import (
	corev1 "k8s.io/api/core/v1"

	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/input/oom"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"
)

func conversion(in struct {
	Function string  `json:"function"`
	Value    float64 `json:"value"`
	Factor   float64 `json:"factor"`
	Scale    int     `json:"scale"`
}) any {
	amount := model.ResourceAmount(in.Value)
	switch in.Function {
	case "cpu_amount_from_cores":
		return map[string]any{"result": model.CPUAmountFromCores(in.Value)}
	case "memory_amount_from_bytes", "resource_amount_from_float":
		return map[string]any{"result": model.MemoryAmountFromBytes(in.Value)}
	case "scale_resource":
		return map[string]any{"result": model.ScaleResource(amount, in.Factor)}
	case "humanize_memory":
		return map[string]any{"result": model.HumanizeMemoryQuantity(int64(amount))}
	case "round_up_to_scale":
		rounded, err := model.RoundUpToScale(amount, in.Scale)
		return map[string]any{"result": rounded, "error": err != nil}
	}
	panic("no function " + in.Function)
}

func resourceList(in struct {
	CPU         model.ResourceAmount `json:"cpu_millicores"`
	Memory      model.ResourceAmount `json:"memory_bytes"`
	Humanize    bool                 `json:"humanize_memory"`
	RoundCPU    int                  `json:"round_cpu_millicores"`
	RoundMemory int                  `json:"round_memory_bytes"`
}) any {
	amounts := model.Resources{model.ResourceCPU: in.CPU, model.ResourceMemory: in.Memory}
	return model.ResourcesAsResourceList(amounts, in.Humanize, in.RoundCPU, in.RoundMemory)
}

// told are the OOMs that an observer has made of what it was shown.
func told(channel chan oom.OomInfo) []map[string]any {
	close(channel)
	found := []map[string]any{}
	for each := range channel {
		found = append(found, map[string]any{
			"namespace": each.ContainerID.Namespace, "pod": each.ContainerID.PodName,
			"container": each.ContainerID.ContainerName, "memory_bytes": each.Memory,
			"timestamp": each.Timestamp,
		})
	}
	return found
}

func oomFromPodUpdate(in struct {
	Old *corev1.Pod `json:"old_pod"`
	New *corev1.Pod `json:"new_pod"`
}) any {
	observer := oom.NewObserver()
	observer.OnUpdate(in.Old, in.New)
	for _, first := range told(observer.GetObservedOomsChannel()) {
		return map[string]any{"oom": first}
	}
	return map[string]any{"oom": nil}
}

func oomFromEvictionEvent(in struct {
	Event *corev1.Event `json:"event"`
}) any {
	observer := oom.NewObserver()
	observer.OnEvent(in.Event)
	return map[string]any{"ooms": told(observer.GetObservedOomsChannel())}
}
