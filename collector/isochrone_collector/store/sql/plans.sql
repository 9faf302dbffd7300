-- Plans and targets.

-- The plan in force.
-- name: newest_plan
SELECT version, document, applied_at, signature
FROM plan
ORDER BY version DESC
LIMIT 1

-- The plans that were in force at some time of a window, with the span of each.
-- name: plans_of_window
SELECT version, applied_at, until_at
FROM (
    SELECT version, applied_at, lead(applied_at) OVER (ORDER BY version) AS until_at
    FROM plan
) AS spans
WHERE applied_at < %(until_at)s AND (until_at IS NULL OR until_at > %(from_at)s)
ORDER BY version

-- Put a plan into force.
-- name: insert_plan
INSERT INTO plan (version, document, applied_at, applied_by, restores, signature)
VALUES (%(version)s, %(document)s, %(applied_at)s, %(applied_by)s, %(restores)s, %(signature)s)

-- The origin of one plan.
-- name: plan_of_version
SELECT version, applied_at, applied_by, restores, signature
FROM plan
WHERE version = %(version)s

-- The document of one plan.
-- name: plan_document
SELECT document
FROM plan
WHERE version = %(version)s

-- The newest plans, the newest first.
-- name: plan_history
SELECT version, applied_at, applied_by, restores, signature
FROM plan
ORDER BY version DESC
LIMIT %(limit)s

-- Record a target that is planned for the first time.
-- name: insert_target
INSERT INTO target (
    id, name, provider, model, base_url, dialect, workload, every_us, overlap, credential,
    usd_per_m_input, usd_per_m_output, region, first_version, last_version
)
VALUES (
    %(id)s, %(name)s, %(provider)s, %(model)s, %(base_url)s, %(dialect)s, %(workload)s, %(every_us)s, %(overlap)s,
    %(credential)s, %(usd_per_m_input)s, %(usd_per_m_output)s, %(region)s, %(version)s, %(version)s
)
ON CONFLICT DO NOTHING

-- Describe a target as in the newest plan. The parts that its id is made of cannot have changed.
-- name: describe_target
UPDATE target
SET name = %(name)s,
    workload = %(workload)s,
    every_us = %(every_us)s,
    overlap = %(overlap)s,
    credential = %(credential)s,
    usd_per_m_input = %(usd_per_m_input)s,
    usd_per_m_output = %(usd_per_m_output)s,
    region = %(region)s,
    last_version = %(version)s
WHERE id = %(id)s

-- Every target ever planned.
-- name: targets
SELECT id, name, provider, model, every_us, usd_per_m_input, usd_per_m_output, last_version
FROM target
ORDER BY name, last_version DESC

-- The version of the plan in force, 0 before the first.
-- name: newest_plan_version
SELECT coalesce(max(version), 0)
FROM plan

-- Its signature, empty if it is not signed.
-- name: newest_plan_signature
SELECT coalesce((SELECT signature FROM plan ORDER BY version DESC LIMIT 1), '')
