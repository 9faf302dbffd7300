-- The audit trail, to which rows are only added.

-- Record one action.
-- name: insert_audit
INSERT INTO audit (id, at, principal, address, action, target)
VALUES (%(id)s, %(at)s, %(principal)s, %(address)s, %(action)s, %(target)s)

-- The newest actions since an instant, newest first.
-- name: audit_since
SELECT at, principal, address, action, target
FROM audit
WHERE at >= %(since_at)s
    AND (%(principal)s::text = '' OR principal = %(principal)s)
    AND (%(action)s::text = '' OR action = %(action)s)
ORDER BY at DESC, id DESC
LIMIT %(most)s
