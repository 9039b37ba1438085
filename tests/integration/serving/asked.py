"""What is asked of the server, and who asks."""

from tests.unit.serving.kit import GROUP

PODS = f"/apis/{GROUP}/v1beta2/namespaces/default/pods/*/rps"
HPA = {"X_Remote_User": "hpa", "X_Remote_Group": "system:serviceaccounts"}
