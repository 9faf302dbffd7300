-- Who may come in.

-- Every credential there ever was.
-- name: credentials
SELECT id, name, role, region, secret_hash, created_at, expires_at, revoked_at, last_used_at
FROM credential
ORDER BY created_at, id

-- How many were made, revoked, and told to end. Credentials are never unmade and none of these is ever taken back, so
-- where all three are as before, nobody who may come in has changed. (An end that is moved comes with a new credential.)
-- name: credential_counts
SELECT count(*) AS made, count(revoked_at) AS revoked, count(expires_at) AS ending
FROM credential

-- One credential, perhaps another collector's newest.
-- name: credential_by_id
SELECT id, name, role, region, secret_hash, created_at, expires_at, revoked_at, last_used_at
FROM credential
WHERE id = %(id)s

-- The invitations that may still be used, or have expired unused.
-- name: invitations
SELECT id, name, role, region, secret_hash, overlap_us, created_at, expires_at, used_at, revoked_at
FROM invitation
WHERE used_at IS NULL AND revoked_at IS NULL
ORDER BY created_at, id

-- One invitation, whatever has become of it.
-- name: invitation_by_id
SELECT id, name, role, region, secret_hash, overlap_us, created_at, expires_at, used_at, revoked_at
FROM invitation
WHERE id = %(id)s

-- Somebody is invited.
-- name: insert_invitation
INSERT INTO invitation (id, name, role, region, secret_hash, overlap_us, created_at, expires_at)
VALUES (
    %(id)s, %(name)s, %(role)s, %(region)s, %(secret_hash)s, %(overlap_us)s, %(created_at)s, %(expires_at)s
)

-- An invitation is used, once: no row comes back the second time.
-- name: use_invitation
UPDATE invitation
SET used_at = %(used_at)s
WHERE id = %(id)s AND used_at IS NULL AND revoked_at IS NULL AND expires_at > %(used_at)s
RETURNING id

-- A credential begins.
-- name: insert_credential
INSERT INTO credential (id, name, role, region, secret_hash, created_at)
VALUES (%(id)s, %(name)s, %(role)s, %(region)s, %(secret_hash)s, %(created_at)s)

-- Earlier credentials of a name end when the overlap does, unless they end sooner anyway.
-- name: end_earlier_credentials
UPDATE credential
SET expires_at = least(expires_at, %(expires_at)s)
WHERE name = %(name)s AND id <> %(id)s AND revoked_at IS NULL

-- Nobody of that name comes in any more.
-- name: revoke_credentials
UPDATE credential
SET revoked_at = %(revoked_at)s
WHERE name = %(name)s AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > %(revoked_at)s)
RETURNING id

-- Nor joins with a token made before.
-- name: revoke_invitations
UPDATE invitation
SET revoked_at = %(revoked_at)s
WHERE name = %(name)s AND used_at IS NULL AND revoked_at IS NULL AND expires_at > %(revoked_at)s
RETURNING id

-- One credential ends.
-- name: revoke_credential
UPDATE credential
SET revoked_at = %(revoked_at)s
WHERE id = %(id)s AND revoked_at IS NULL

-- When credentials were used last, as of now and then.
-- name: record_credential_use
UPDATE credential
SET last_used_at = %(used_at)s
WHERE id = ANY(%(ids)s::bigint[]) AND (last_used_at IS NULL OR last_used_at < %(used_at)s)
