package main

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vpa_types "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/util"
)

type layout struct {
	Type    string  `json:"type"`
	Max     float64 `json:"max"`
	Size    float64 `json:"bucket_size"`
	First   float64 `json:"first_bucket"`
	Ratio   float64 `json:"ratio"`
	Epsilon float64 `json:"epsilon"`
}

func (l layout) options() (util.HistogramOptions, error) {
	if l.Type == "linear" {
		return util.NewLinearHistogramOptions(l.Max, l.Size, l.Epsilon)
	}
	return util.NewExponentialHistogramOptions(l.Max, l.First, l.Ratio, l.Epsilon)
}

// saved is a histogram of a checkpoint in the case's words.
type saved struct {
	Weights   map[int]uint32 `json:"bucket_weights"`
	Total     float64        `json:"total_weight"`
	Reference *time.Time     `json:"reference_timestamp"`
}

func (s saved) checkpoint() *vpa_types.HistogramCheckpoint {
	made := &vpa_types.HistogramCheckpoint{BucketWeights: s.Weights, TotalWeight: s.Total}
	if s.Reference != nil {
		made.ReferenceTimestamp = metav1.NewTime(*s.Reference)
	}
	return made
}

func savedOf(made *vpa_types.HistogramCheckpoint) saved {
	return saved{made.BucketWeights, made.TotalWeight, stamp(made.ReferenceTimestamp.Time)}
}

// stamp is a time as a case writes it: nothing for the zero time.
func stamp(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	at = at.UTC()
	return &at
}

type operation struct {
	Op         string      `json:"op"`
	Value      float64     `json:"v"`
	Weight     float64     `json:"w"`
	Time       time.Time   `json:"t"`
	Operations []operation `json:"ops"`
	Checkpoint saved       `json:"checkpoint"`
}

type histogramInputs struct {
	Options     layout      `json:"options"`
	HalfLife    *float64    `json:"half_life_s"`
	Operations  []operation `json:"ops"`
	Percentiles []float64   `json:"percentiles"`
}

func duration(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second))
}

func (in histogramInputs) empty(options util.HistogramOptions) util.Histogram {
	if in.HalfLife == nil {
		return util.NewHistogram(options)
	}
	return util.NewDecayingHistogram(options, duration(*in.HalfLife))
}

func (in histogramInputs) built(options util.HistogramOptions, operations []operation) (util.Histogram, error) {
	made := in.empty(options)
	for _, each := range operations {
		switch each.Op {
		case "add":
			made.AddSample(each.Value, each.Weight, each.Time)
		case "subtract":
			made.SubtractSample(each.Value, each.Weight, each.Time)
		case "merge":
			other, err := in.built(options, each.Operations)
			if err != nil {
				return nil, err
			}
			made.Merge(other)
		case "load":
			if err := made.LoadFromCheckpoint(each.Checkpoint.checkpoint()); err != nil {
				return nil, err
			}
		case "save_and_load":
			kept, err := made.SaveToChekpoint()
			if err != nil {
				return nil, err
			}
			made = in.empty(options)
			if err := made.LoadFromCheckpoint(kept); err != nil {
				return nil, err
			}
		default:
			panic("no operation " + each.Op)
		}
	}
	return made, nil
}

func histogram(in histogramInputs) any {
	options, err := in.Options.options()
	if err != nil {
		return map[string]any{"error": "invalid_options"}
	}
	made, err := in.built(options, in.Operations)
	if err != nil {
		return map[string]any{"error": refusal(err)}
	}
	kept, err := made.SaveToChekpoint()
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	return map[string]any{
		"checkpoint":  savedOf(kept),
		"is_empty":    made.IsEmpty(),
		"percentiles": percentiles(made, in.Percentiles),
	}
}

func refusal(err error) string {
	for token, text := range map[string]string{
		"negative_weight": "negative weight", "negative_bucket": "negative bucket",
		"bucket_out_of_range": "exceeding histogram buckets",
	} {
		if strings.Contains(err.Error(), text) {
			return token
		}
	}
	return err.Error()
}

func percentiles(of util.Histogram, asked []float64) []map[string]float64 {
	read := []map[string]float64{}
	for _, each := range asked {
		read = append(read, map[string]float64{"p": each, "value": of.Percentile(each)})
	}
	return read
}
