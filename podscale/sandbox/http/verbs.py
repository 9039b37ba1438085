"""The verbs on stored resources, from a read request to an answer."""

from dataclasses import dataclass
from typing import Any

from aiohttp import web

from podscale.core.ascii_text import whole_number
from podscale.sandbox import errors
from podscale.sandbox.auth import Request, SandboxTokens
from podscale.sandbox.http import bodies, subresources
from podscale.sandbox.http.extensions import Admission, AdmittedWrite
from podscale.sandbox.http.watch import OpenWatches, selectors
from podscale.sandbox.objects import patch
from podscale.sandbox.objects.objects import SandboxObjects
from podscale.sandbox.objects.resources import SandboxResource
from podscale.sandbox.objects.storage import Key, Object, Stored
from podscale.serving.status import StatusError

_PATCH_ATTEMPTS = 5  # as kube-apiserver: a patch without resourceVersion meets no conflict


@dataclass(eq=False)
class ResourceVerbs:
    """Handlers of the verbs; one instance per server."""

    objects: SandboxObjects
    admission: Admission
    tokens: SandboxTokens
    watches: OpenWatches

    async def answer(self, resource: SandboxResource, asked: Request) -> web.StreamResponse:
        """Return the answer to a request for ``resource``; raises ``StatusError``."""
        target = asked.target
        if target.subresource:
            return await self._subresource(resource, asked)
        if asked.verb not in resource.verbs:
            raise errors.method_not_allowed()
        match asked.verb:
            case "list":
                return self._list(resource, asked)
            case "watch":
                return await self.watches.answer(resource, asked)
            case "get":
                stored = self.objects.stored(resource, *_key(resource, asked))
                return self._one(resource, asked, stored)
            case "create" if not target.name:
                return await self._create(resource, asked)
            case "update" if target.name:
                return await self._update(resource, asked, "")
            case "patch" if target.name:
                return await self._patch(resource, asked, "")
            case "delete":
                options = await bodies.read_object(asked.http) if asked.http.can_read_body else {}
                return self._delete(resource, asked, options)
            case "deletecollection":
                return self._delete_all(resource, asked)
        raise errors.method_not_allowed()

    def _list(self, resource: SandboxResource, asked: Request) -> web.Response:
        query = asked.query
        chosen, fields = selectors(resource, asked)
        limit = whole_number(query.get("limit", "")) or 0
        held = self.objects.storage.table(resource.group, resource.plural)
        after: Key | None = None
        revision = self.objects.storage.revision
        if token := query.get("continue"):
            page = bodies.read_page(token)
            after, revision = (page.namespace, page.name), page.rv
            if page.rv < held.compacted:
                raise errors.expired()
        found: list[Stored] = []
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        namespace = asked.target.namespace if resource.namespaced else ""
        for stored in self.objects.select(resource, namespace, chosen, fields, after):
            if limit and len(found) == limit:
                last = found[-1].key
                metadata["continue"] = bodies.write_page(
                    bodies.SandboxPage(revision, last[0], last[1])
                )
                if chosen.is_everything and not fields:
                    metadata["remainingItemCount"] = held.count(namespace, last)
                break
            found.append(stored)
        accept = asked.http.headers.get("Accept", "")
        if bodies.wants_table(accept):
            return self._rows(resource, asked, found, metadata)
        if bodies.wants_metadata(accept):
            return bodies.as_bytes(bodies.encode_metadata_list(found, metadata))
        return bodies.as_bytes(bodies.encode_list(resource, asked.target.version, found, metadata))

    async def _create(self, resource: SandboxResource, asked: Request) -> web.Response:
        body = _checked(resource, await bodies.read_object(asked.http))
        namespace = asked.target.namespace
        write = AdmittedWrite(resource, "CREATE", asked.user, namespace)
        body = await self.admission.admit(write, {"metadata": {}, **body})
        if asked.query.get("dryRun"):
            return bodies.as_json(body, status=201)
        stored = self.objects.create(resource, namespace, body)
        return bodies.as_bytes(self._encoded(resource, asked, stored), 201)

    async def _update(
        self, resource: SandboxResource, asked: Request, subresource: str
    ) -> web.Response:
        body = _checked(resource, await bodies.read_object(asked.http))
        namespace, name = _key(resource, asked)
        _check_name(body, name)
        if resource.is_custom and not (body.get("metadata") or {}).get("resourceVersion"):
            message = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
            raise errors.unprocessable(f'{resource.name} "{name}" is invalid: {message}')
        return await self._write(resource, asked, namespace, name, body, subresource)

    async def _patch(
        self, resource: SandboxResource, asked: Request, subresource: str
    ) -> web.Response:
        namespace, name = _key(resource, asked)
        sent = await bodies.read_patch(asked.http)
        for attempt in range(_PATCH_ATTEMPTS):
            old = self.objects.get(resource, namespace, name)
            new = _patched(resource, asked, old, sent)
            revision = _revision(sent) or old["metadata"]["resourceVersion"]
            new = {**new, "metadata": {**new["metadata"], "resourceVersion": revision}}
            try:
                return await self._write(resource, asked, namespace, name, new, subresource)
            except StatusError as error:
                is_last = attempt == _PATCH_ATTEMPTS - 1
                if error.status.reason != "Conflict" or _revision(sent) or is_last:
                    raise
        raise AssertionError("unreachable")

    async def _write(
        self,
        resource: SandboxResource,
        asked: Request,
        namespace: str,
        name: str,
        body: Object,
        subresource: str,
    ) -> web.Response:
        old = self.objects.get(resource, namespace, name)
        write = AdmittedWrite(resource, "UPDATE", asked.user, namespace, old, subresource)
        body = await self.admission.admit(write, body)
        if asked.query.get("dryRun"):
            return bodies.as_json(body)
        status = "status" if subresource == "status" else ""
        stored = self.objects.update(resource, namespace, name, body, status)
        return bodies.as_bytes(self._encoded(resource, asked, stored))

    def _delete(self, resource: SandboxResource, asked: Request, options: Object) -> web.Response:
        namespace, name = _key(resource, asked)
        old = self.objects.stored(resource, namespace, name)
        if asked.query.get("dryRun") or options.get("dryRun"):
            return bodies.as_bytes(self._encoded(resource, asked, old))
        for key in ("propagationPolicy", "gracePeriodSeconds"):
            if key in asked.query and key not in options:
                text = asked.query[key]
                options[key] = text if (number := whole_number(text)) is None else number
        stored = self.objects.delete(resource, namespace, name, options=options)
        is_gone = self.objects.find(resource, namespace, name) is None
        if is_gone and resource.kind not in ("Pod", "Namespace"):
            return bodies.as_json(_success(resource, stored.object))
        return bodies.as_bytes(self._encoded(resource, asked, stored))

    def _delete_all(self, resource: SandboxResource, asked: Request) -> web.Response:
        chosen, fields = selectors(resource, asked)
        namespace = asked.target.namespace if resource.namespaced else ""
        found = list(self.objects.select(resource, namespace, chosen, fields))
        for stored in found:
            self.objects.delete(resource, *stored.key)
        revision = {"resourceVersion": str(self.objects.storage.revision)}
        return bodies.as_bytes(bodies.encode_list(resource, asked.target.version, found, revision))

    async def _subresource(self, resource: SandboxResource, asked: Request) -> web.StreamResponse:
        namespace, name = _key(resource, asked)
        match asked.target.subresource, asked.verb:
            case "status", "get" if resource.has_status:
                return self._one(resource, asked, self.objects.stored(resource, namespace, name))
            case "status", "update" if resource.has_status:
                return await self._update(resource, asked, "status")
            case "status", "patch" if resource.has_status:
                return await self._patch(resource, asked, "status")
            case "scale", verb if resource.scale is not None:
                return await self._scale(resource, asked, verb)
            case "eviction", "create" if resource.name == "pods":
                answer = subresources.evict(
                    self.objects, namespace, name, await bodies.read_object(asked.http)
                )
                return bodies.as_json(answer, status=201)
            case "resize", ("update" | "patch") as verb if resource.name == "pods":
                return await self._resize(resource, asked, verb)
            case "resize", "get" if resource.name == "pods":
                return self._one(resource, asked, self.objects.stored(resource, namespace, name))
            case "token", "create" if resource.name == "serviceaccounts":
                body = await bodies.read_object(asked.http)
                answer = subresources.request_token(self.tokens, namespace, name, body)
                return bodies.as_json(answer, status=201)
        raise errors.unknown_path()

    async def _scale(self, resource: SandboxResource, asked: Request, verb: str) -> web.Response:
        namespace, name = _key(resource, asked)
        scale = subresources.read_scale(resource, self.objects.get(resource, namespace, name))
        if verb == "get":
            return bodies.as_json(scale)
        if verb == "update":
            given = await bodies.read_object(asked.http)
        elif verb == "patch":
            sent = await bodies.read_patch(asked.http)
            given = _patched(resource, asked, scale, sent)
            if not _revision(sent):
                given["metadata"].pop("resourceVersion", None)
        else:
            raise errors.method_not_allowed()
        stored = subresources.write_scale(self.objects, resource, namespace, name, given)
        return bodies.as_json(subresources.read_scale(resource, stored.object))

    async def _resize(self, resource: SandboxResource, asked: Request, verb: str) -> web.Response:
        namespace, name = _key(resource, asked)
        pod = self.objects.get(resource, namespace, name)
        if verb == "patch":
            sent = await bodies.read_patch(asked.http)
            body = _patched(resource, asked, pod, sent)
            body = {**body, "metadata": {**body["metadata"], "resourceVersion": _revision(sent)}}
        else:
            body = await bodies.read_object(asked.http)
        return await self._write(
            resource, asked, namespace, name, subresources.resized(pod, body), "resize"
        )

    def _one(self, resource: SandboxResource, asked: Request, stored: Stored) -> web.Response:
        if bodies.wants_table(asked.http.headers.get("Accept", "")):
            metadata = {"resourceVersion": str(stored.revision)}
            return self._rows(resource, asked, [stored], metadata)
        if bodies.wants_metadata(asked.http.headers.get("Accept", "")):
            return bodies.as_bytes(bodies.encode_metadata(stored))
        return bodies.as_bytes(self._encoded(resource, asked, stored))

    def _rows(
        self,
        resource: SandboxResource,
        asked: Request,
        found: list[Stored],
        metadata: dict[str, Any],
    ) -> web.Response:
        version, now = asked.target.version, self.objects.storage.wall()
        rows = bodies.table_of(resource, version, found, metadata, asked.query, now)
        return bodies.as_json(rows, bodies.TABLE)

    def _encoded(self, resource: SandboxResource, asked: Request, stored: Stored) -> bytes:
        return stored.encoded(resource.api_version(asked.target.version), resource.kind)


def _key(resource: SandboxResource, asked: Request) -> tuple[str, str]:
    return (asked.target.namespace if resource.namespaced else "", asked.target.name)


def _checked(resource: SandboxResource, body: Object) -> Object:
    kind, api_version = body.get("kind"), body.get("apiVersion")
    expected = [resource.api_version(version) for version in resource.served_versions]
    if (kind and kind != resource.kind) or (api_version and api_version not in expected):
        raise errors.bad_request(
            f'{kind} in version "{api_version}" cannot be handled as a {resource.kind}'
        )
    return body


def _check_name(body: Object, name: str) -> None:
    given = (body.get("metadata") or {}).get("name") or name
    if given != name:
        raise errors.bad_request(
            f"the name of the object ({given}) does not match the name on the URL ({name})"
        )


def _revision(sent: Any) -> str:
    """Return the resourceVersion that a patch insists on; a JSON patch has its tests for that."""
    metadata = sent.get("metadata") if isinstance(sent, dict) else None
    return str((metadata or {}).get("resourceVersion") or "")


def _patched(resource: SandboxResource, asked: Request, old: Object, sent: Any) -> Object:
    new: Object
    kind = asked.http.content_type
    if kind == patch.JSON:
        new = patch.json_patch(old, sent)
    elif kind == patch.MERGE:
        new = patch.merge(old, sent)
    elif resource.is_custom:
        raise errors.unsupported_media(", ".join((patch.JSON, patch.MERGE)))
    else:
        new = patch.strategic(old, sent)
    return new


def _success(resource: SandboxResource, content: Object) -> Object:
    metadata = content["metadata"]
    details = {
        "name": metadata["name"],
        "group": resource.group,
        "kind": resource.plural,
        "uid": metadata["uid"],
    }
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }
