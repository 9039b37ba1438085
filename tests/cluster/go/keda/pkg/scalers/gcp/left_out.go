// Package gcp has no Google in it: what KEDA's Prometheus scaler calls, which then finds no credentials.
package gcp

import (
	"errors"
	"net/http"
)

const GcpScopeMonitoringRead = ""

var ErrGoogleApplicationCrendentialsNotFound = errors.New("left out of this build")

func GetGCPOAuth2HTTPTransport(...any) (http.RoundTripper, error) {
	return nil, ErrGoogleApplicationCrendentialsNotFound
}
