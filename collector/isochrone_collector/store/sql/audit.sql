-- The audit trail, to which rows are only added, each with a hash over the one before it.

-- Wait until no other transaction adds a row; held until the transaction ends.
-- name: lock_audit
SELECT pg_advisory_xact_lock(%(key)s)

-- The newest row.
-- name: audit_head
SELECT id, hash
FROM audit
ORDER BY id DESC
LIMIT 1

-- Record one action.
-- name: insert_audit
INSERT INTO audit (id, at, principal, address, action, target, hash)
VALUES (%(id)s, %(at)s, %(principal)s, %(address)s, %(action)s, %(target)s, %(hash)s)

-- All rows, as their hashes were computed.
-- name: audit_chain
SELECT
    id,
    (extract(epoch FROM at) * 1000000)::bigint AS at_us,
    principal,
    address,
    action,
    target,
    hash
FROM audit
ORDER BY id

-- Whether this user may remove rows, or can give itself the right.
-- name: owns_audit
SELECT pg_has_role(relowner, 'MEMBER')
FROM pg_class
WHERE oid = 'audit'::regclass

-- The newest actions since an instant, newest first.
-- name: audit_since
SELECT at, principal, address, action, target
FROM audit
WHERE at >= %(since_at)s
    AND (%(principal)s::text = '' OR principal = %(principal)s)
    AND (%(action)s::text = '' OR action = %(action)s)
ORDER BY at DESC, id DESC
LIMIT %(most)s
