-- name: LeaderTermForShare :one
SELECT term FROM leader_term WHERE id = 'leader' FOR SHARE;
