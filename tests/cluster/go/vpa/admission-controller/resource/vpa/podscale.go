package vpa

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	vpa_types "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
)

// Validated shows to our program what the package keeps to itself.
func Validated(vpa *vpa_types.VerticalPodAutoscaler, opts VPAValidationOptions) ([]string, field.ErrorList) {
	return validateVPA(vpa, opts)
}
