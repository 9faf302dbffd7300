-- Credentials and invitations.

-- Every credential ever made.
-- name: credentials
SELECT
    id, name, role, region, secret_hash, created_at, expires_at, revoked_at, last_used_at, lifetime_us, renewal_key, renews
FROM credential
ORDER BY created_at, id

-- The numbers of credentials made, revoked, given an end, and used. Credentials are never deleted, and revocations, ends
-- and uses are never removed: if all numbers are unchanged, so are the valid credentials. (An end is only moved together
-- with a new credential, or just before its successor is recorded as used.)
-- name: credential_counts
SELECT count(*) AS made, count(revoked_at) AS revoked, count(expires_at) AS ending, count(last_used_at) AS used
FROM credential

-- One credential, which another collector may have made just now.
-- name: credential_by_id
SELECT
    id, name, role, region, secret_hash, created_at, expires_at, revoked_at, last_used_at, lifetime_us, renewal_key, renews
FROM credential
WHERE id = %(id)s

-- The invitations that may still be used, or have expired unused.
-- name: invitations
SELECT id, name, role, region, secret_hash, overlap_us, created_at, expires_at, used_at, revoked_at, lifetime_us
FROM invitation
WHERE used_at IS NULL AND revoked_at IS NULL
ORDER BY created_at, id

-- One invitation, in any state.
-- name: invitation_by_id
SELECT id, name, role, region, secret_hash, overlap_us, created_at, expires_at, used_at, revoked_at, lifetime_us
FROM invitation
WHERE id = %(id)s

-- Make an invitation.
-- name: insert_invitation
INSERT INTO invitation (id, name, role, region, secret_hash, overlap_us, created_at, expires_at, lifetime_us)
VALUES (
    %(id)s, %(name)s, %(role)s, %(region)s, %(secret_hash)s, %(overlap_us)s, %(created_at)s, %(expires_at)s,
    %(lifetime_us)s
)

-- Use an invitation; the second time no row is returned.
-- name: use_invitation
UPDATE invitation
SET used_at = %(used_at)s
WHERE id = %(id)s AND used_at IS NULL AND revoked_at IS NULL AND expires_at > %(used_at)s
RETURNING id

-- Make a credential.
-- name: insert_credential
INSERT INTO credential (id, name, role, region, secret_hash, created_at, expires_at, lifetime_us, renews)
VALUES (
    %(id)s, %(name)s, %(role)s, %(region)s, %(secret_hash)s, %(created_at)s, %(expires_at)s, %(lifetime_us)s, %(renews)s
)

-- Set the key from which the successor of a credential is derived.
-- name: set_renewal_key
UPDATE credential
SET renewal_key = %(renewal_key)s
WHERE id = %(id)s

-- End the credentials whose successors are used for the first time, unless they end sooner anyway.
-- name: end_renewed_credentials
UPDATE credential
SET expires_at = least(expires_at, %(expires_at)s)
WHERE revoked_at IS NULL AND id IN (
    SELECT successor.renews
    FROM credential AS successor
    WHERE successor.id = ANY(%(used)s::bigint[]) AND successor.last_used_at IS NULL
)

-- End earlier credentials of a name with the overlap, unless they end sooner anyway.
-- name: end_earlier_credentials
UPDATE credential
SET expires_at = least(expires_at, %(expires_at)s)
WHERE name = %(name)s AND id <> %(id)s AND revoked_at IS NULL

-- Revoke the valid credentials of a name.
-- name: revoke_credentials
UPDATE credential
SET revoked_at = %(revoked_at)s
WHERE name = %(name)s AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > %(revoked_at)s)
RETURNING id

-- Revoke the open invitations of a name.
-- name: revoke_invitations
UPDATE invitation
SET revoked_at = %(revoked_at)s
WHERE (%(name)s::text IS NULL OR name = %(name)s)
    AND used_at IS NULL AND revoked_at IS NULL AND expires_at > %(revoked_at)s
RETURNING id

-- Revoke the valid credentials of some roles, except those of one name.
-- name: revoke_roles
UPDATE credential
SET revoked_at = %(revoked_at)s
WHERE role = ANY(%(roles)s::text[]) AND name <> %(keep)s AND revoked_at IS NULL
    AND (expires_at IS NULL OR expires_at > %(revoked_at)s)
RETURNING id

-- Revoke one credential.
-- name: revoke_credential
UPDATE credential
SET revoked_at = %(revoked_at)s
WHERE id = %(id)s AND revoked_at IS NULL

-- Record the last use of credentials, which collectors report from time to time.
-- name: record_credential_use
UPDATE credential
SET last_used_at = %(used_at)s
WHERE id = ANY(%(ids)s::bigint[]) AND (last_used_at IS NULL OR last_used_at < %(used_at)s)
