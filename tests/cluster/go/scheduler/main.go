// Command scheduler answers for pods as kube-scheduler's filters do, with the default profile:
// one line of JSON with a pod and its cluster, one with the verdict of each node.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"syscall"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

const together = 16

type question struct {
	Pod        *v1.Pod                     `json:"pod"`
	Nodes      []*v1.Node                  `json:"nodes"`
	Pods       []*v1.Pod                   `json:"pods"`
	Pending    []*v1.Pod                   `json:"pending"` // in place of pod: how long all take
	Claims     []*v1.PersistentVolumeClaim `json:"claims"`
	Volumes    []*v1.PersistentVolume      `json:"volumes"`
	Classes    []*storagev1.StorageClass   `json:"classes"`
	Namespaces []*v1.Namespace             `json:"namespaces"`
}

type refusal struct {
	Plugin   string   `json:"plugin"`
	Messages []string `json:"messages"`
}

type answer struct {
	Failed  string              `json:"failed,omitempty"`
	Refused *refusal            `json:"refused,omitempty"` // before any node was looked at
	Nodes   map[string]*refusal `json:"nodes"`             // null: it has room
	Message string              `json:"message"`           // as in the event
	CPU     float64             `json:"cpu_s,omitempty"`   // of all that are pending
}

func main() {
	klog.SetOutput(os.Stderr)
	klog.LogToStderr(false)
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	var told []*answer
	var group sync.WaitGroup
	slots := make(chan struct{}, together)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			break
		}
		one := &answer{}
		told = append(told, one)
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			if err := one.find(line); err != nil {
				one.Failed = err.Error()
			}
		})
	}
	group.Wait()
	out := json.NewEncoder(os.Stdout)
	for _, one := range told {
		if err := out.Encode(one); err != nil {
			panic(err)
		}
	}
}

func (a *answer) find(line []byte) error {
	var asked question
	if err := json.Unmarshal(line, &asked); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	logger := klog.FromContext(ctx)
	sched, err := schedulerOver(ctx, asked)
	if err != nil {
		return err
	}
	profile := sched.Profiles["default-scheduler"]
	for _, node := range asked.Nodes {
		sched.Cache.AddNode(logger, node)
	}
	for _, pod := range asked.Pods {
		// What its informer leaves out, and what is not assigned.
		hasEnded := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
		if hasEnded || pod.Spec.NodeName == "" {
			continue
		}
		if err := sched.Cache.AddPod(logger, pod); err != nil {
			return err
		}
	}
	snapshot := profile.SnapshotSharedLister().(*cache.Snapshot)
	if err := sched.Cache.UpdateSnapshot(logger, snapshot); err != nil {
		return err
	}
	if asked.Pod != nil {
		return a.filter(ctx, profile, snapshot, asked.Pod)
	}
	begun := cpu()
	for _, pod := range asked.Pending {
		if err := (&answer{}).filter(ctx, profile, snapshot, pod); err != nil {
			return err
		}
	}
	a.CPU = cpu() - begun
	return nil
}

func cpu() float64 {
	var spent syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &spent); err != nil {
		panic(err)
	}
	return float64(spent.Utime.Nano()+spent.Stime.Nano()) / 1e9
}

func schedulerOver(ctx context.Context, asked question) (*scheduler.Scheduler, error) {
	var objects []runtime.Object
	for _, each := range asked.Claims {
		objects = append(objects, each)
	}
	for _, each := range asked.Volumes {
		objects = append(objects, each)
	}
	for _, each := range asked.Classes {
		objects = append(objects, each)
	}
	for _, each := range asked.Namespaces {
		objects = append(objects, each)
	}
	client := fake.NewSimpleClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	recorder := func(string) events.EventRecorderLogger { return &events.FakeRecorder{} }
	sched, err := scheduler.New(ctx, client, factory, nil, recorder)
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return sched, sched.WaitForHandlersSync(ctx)
}

// As findNodesThatFitPod, but for every node.
func (a *answer) filter(
	ctx context.Context, profile framework.Framework, snapshot *cache.Snapshot, pod *v1.Pod,
) error {
	for _, plugin := range profile.PreEnqueuePlugins() {
		if status := plugin.PreEnqueue(ctx, pod); !status.IsSuccess() {
			a.Refused = &refusal{plugin.Name(), status.Reasons()}
			a.Message = status.Message()
			return nil
		}
	}
	nodes, err := snapshot.NodeInfos().List()
	if err != nil {
		return err
	}
	if len(nodes) == 0 {
		a.Message = scheduler.ErrNoNodesAvailable.Error()
		return nil
	}
	diagnosis := framework.Diagnosis{NodeToStatus: framework.NewDefaultNodeToStatus()}
	state := framework.NewCycleState()
	only, status, by := profile.RunPreFilterPlugins(ctx, state, pod)
	switch {
	case status.IsRejected():
		diagnosis.PreFilterMsg = status.Message()
		a.Refused = &refusal{status.Plugin(), status.Reasons()}
	case !status.IsSuccess():
		return status.AsError()
	default:
		a.Nodes = map[string]*refusal{}
		if !only.AllNodes() {
			diagnosis.NodeToStatus.SetAbsentNodesStatus(fwk.NewStatus(
				fwk.UnschedulableAndUnresolvable,
				fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", sets.List(by)),
			))
		}
	}
	for _, node := range nodes {
		name := node.Node().Name
		if a.Refused != nil {
			break
		}
		if !only.AllNodes() && !only.NodeNames.Has(name) {
			absent := diagnosis.NodeToStatus.AbsentNodesStatus()
			a.Nodes[name] = &refusal{sets.List(by)[0], absent.Reasons()}
			continue
		}
		status := profile.RunFilterPluginsWithNominatedPods(ctx, state, pod, node)
		if status.IsSuccess() {
			a.Nodes[name] = nil
			continue
		}
		if !status.IsRejected() {
			return status.AsError()
		}
		diagnosis.NodeToStatus.Set(name, status)
		a.Nodes[name] = &refusal{status.Plugin(), status.Reasons()}
	}
	a.Message = (&framework.FitError{
		Pod: pod, NumAllNodes: len(nodes), Diagnosis: diagnosis,
	}).Error()
	return nil
}
