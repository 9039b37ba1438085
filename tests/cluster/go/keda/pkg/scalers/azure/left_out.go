// Package azure has no Azure in it: what KEDA's Prometheus scaler and its resolver name.
package azure

import "net/http"

const (
	ServicePrincipalAuthKey                      = "auth"
	ServicePrincipalTenantIDKey                  = "tenant"
	ServicePrincipalClientIDKey                  = "client"
	ServicePrincipalCloudKey                     = "cloud"
	ServicePrincipalActiveDirectoryEndpointKey   = "endpoint"
	ServicePrincipalClientSecretKey              = "secret"
	ServicePrincipalClientCertificateKey         = "certificate"
	ServicePrincipalClientCertificatePasswordKey = "password"
)

func TryAndGetAzureManagedPrometheusHTTPRoundTripper(...any) (http.RoundTripper, error) {
	return nil, nil
}
