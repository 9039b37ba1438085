package podautoscaler

import (
	"encoding/json"
	"time"
)

const (
	namespace = "test-namespace"
	hpaName   = "test-hpa"
	target    = "web"
	ownKey    = namespace + "/" + hpaName

	generation = 7
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
	if a.isAbsent {
		panic("this has no time to be absent")
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
	Type    string   `json:"type"`
	Status  string   `json:"status"`
	Reason  string   `json:"reason"`
	Message string   `json:"message"`
	Age     *float64 `json:"age_s"` // told: since its status changed
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
	Current            int32            `json:"current_replicas"`
	Desired            int32            `json:"desired_replicas"`
	LastScale          *float64         `json:"last_scale_age_s"`
	ObservedGeneration *int64           `json:"observed_generation"`
	Put                *int32           `json:"put_replicas"`
	Gauge              *int32           `json:"gauge"`
	Conditions         []condition      `json:"conditions"`
	Reconciliation     [2]string        `json:"reconciliation"`
	MetricComputations [][3]string      `json:"metric_computations"`
	Events             []event          `json:"events"`
	CurrentMetrics     []map[string]any `json:"current_metrics"`
	Recommendations    []recommended    `json:"recommendations"`
	ScaleUps           []stored         `json:"scale_ups"`
	ScaleDowns         []stored         `json:"scale_downs"`
	StatusWritten      bool             `json:"status_written"`
}
