// Command adapter answers questions about names, labels and queries as prometheus-adapter's packages
// do: one line of JSON with a kind of the case files and a row's inputs, one with what comes out.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	pmodel "github.com/prometheus/common/model"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/restmapper"
	prom "sigs.k8s.io/prometheus-adapter/pkg/client"
	"sigs.k8s.io/prometheus-adapter/pkg/config"
	"sigs.k8s.io/prometheus-adapter/pkg/naming"
)

type question struct {
	Kind      string               `json:"kind"`
	Rule      config.DiscoveryRule `json:"rule"`
	Series    string               `json:"series"`
	Labels    []string             `json:"labels"`
	Resource  string               `json:"resource"`
	Namespace string               `json:"namespace"`
	Names     []string             `json:"names"`
	Extra     []string             `json:"extra"`
	Selector  string               `json:"selector"`
	Text      string               `json:"text"`
}

// answer says at which stage it went wrong, if it did.
type answer struct {
	Refused    string   `json:"refused,omitempty"` // with the rule
	Failed     string   `json:"failed,omitempty"`  // with the request
	Text       string   `json:"text"`
	Kept       bool     `json:"kept"`
	Resources  []string `json:"resources"`
	Namespaced bool     `json:"namespaced"`

	File *config.MetricsDiscoveryConfig `json:"file"`
}

func answered(in question, mapper apimeta.RESTMapper) (out answer) {
	if in.Kind == "file" {
		read, err := config.FromYAML([]byte(in.Text))
		if err != nil {
			return answer{Refused: err.Error()}
		}
		return answer{File: read}
	}
	if in.Kind == "quantity" {
		parsed, err := resource.ParseQuantity(in.Text)
		if err != nil {
			return answer{Refused: err.Error()}
		}
		milli, value := parsed.MilliValue(), parsed.Value()
		// Below 0 and beyond int64 they are not what they say.
		if parsed.Sign() < 0 || parsed.CmpInt64(math.MaxInt64/1000) > 0 {
			milli, value = 0, 0
		}
		parsed.Add(resource.Quantity{}) // its text is not remembered any more
		return answer{Text: fmt.Sprint(parsed.String(), " ", milli, " ", value)}
	}
	selector, err := labels.Parse(in.Selector)
	if in.Kind == "selector" && err == nil {
		set := labels.Set{}
		for _, each := range in.Labels {
			name, value, _ := strings.Cut(each, "=")
			set[name] = value
		}
		return answer{Text: selector.String(), Kept: selector.Matches(set)}
	}
	if err != nil {
		return answer{Failed: err.Error()}
	}
	namers, err := naming.NamersFromConfig([]config.DiscoveryRule{in.Rule}, mapper)
	if err != nil {
		return answer{Refused: err.Error()}
	}
	namer := namers[0]
	defer func() {
		if cause := recover(); cause != nil {
			out = answer{Failed: fmt.Sprint("panic: ", cause)}
		}
	}()
	switch in.Kind {
	case "name":
		series := prom.Series{Name: in.Series}
		out.Kept = len(namer.FilterSeries([]prom.Series{series})) == 1
		out.Text, err = namer.MetricNameForSeries(series)
	case "labels":
		set := pmodel.LabelSet{}
		for _, each := range in.Labels {
			set[pmodel.LabelName(each)] = "x"
		}
		found, namespaced := namer.ResourcesForSeries(prom.Series{Name: "s", Labels: set})
		for _, each := range found {
			out.Resources = append(out.Resources, each.String())
		}
		out.Namespaced = namespaced
	case "label":
		var label pmodel.LabelName
		label, err = namer.LabelForResource(schema.ParseGroupResource(in.Resource))
		out.Text = string(label)
	case "custom":
		var query prom.Selector
		converter, failed := naming.NewResourceConverter(in.Rule.Resources.Template, in.Rule.Resources.Overrides, mapper)
		if failed != nil {
			return answer{Refused: failed.Error()}
		}
		compiled, failed := naming.NewMetricsQuery(in.Rule.MetricsQuery, converter)
		if failed != nil {
			return answer{Refused: failed.Error()}
		}
		query, err = compiled.Build(in.Series, schema.ParseGroupResource(in.Resource), in.Namespace, in.Extra, selector, in.Names...)
		out.Text = string(query)
	case "external":
		var query prom.Selector
		query, err = namer.QueryForExternalSeries(in.Series, in.Namespace, selector)
		out.Text = string(query)
	default:
		err = errors.New("no such kind")
	}
	if err != nil {
		out.Failed = err.Error()
	}
	return out
}

func main() {
	in := json.NewDecoder(bufio.NewReader(os.Stdin))
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	var lists []metav1.APIResourceList
	if err := in.Decode(&lists); err != nil {
		panic(err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(grouped(lists))
	for {
		var asked question
		if err := in.Decode(&asked); err == io.EOF {
			return
		} else if err != nil {
			panic(err)
		}
		written, err := json.Marshal(answered(asked, mapper))
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(out, "%s\n", written)
	}
}

// grouped turns lists of group versions, in the order of discovery, into what the mapper takes.
func grouped(lists []metav1.APIResourceList) (groups []*restmapper.APIGroupResources) {
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			panic(err)
		}
		served := metav1.GroupVersionForDiscovery{GroupVersion: list.GroupVersion, Version: version.Version}
		var group *restmapper.APIGroupResources
		for _, each := range groups {
			if each.Group.Name == version.Group {
				group = each
			}
		}
		if group == nil {
			group = &restmapper.APIGroupResources{VersionedResources: map[string][]metav1.APIResource{}}
			group.Group = metav1.APIGroup{Name: version.Group, PreferredVersion: served}
			groups = append(groups, group)
		}
		group.Group.Versions = append(group.Group.Versions, served)
		group.VersionedResources[version.Version] = list.APIResources
	}
	return groups
}
