package podautoscaler

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/kubernetes/pkg/controller/util/selectors"
)

// register makes the HPA and others known, as the first events of the informer do.
func register(a *HorizontalController, others map[string]labels.Selector) {
	a.hpaSelectors = selectors.NewBiMultimap()
	a.hpaSelectors.PutSelector(selectors.Key{Name: hpaName, Namespace: namespace}, labels.Nothing())
	for name, selector := range others {
		a.hpaSelectors.PutSelector(selectors.Key{Name: name, Namespace: namespace}, selector)
	}
}
