    cmp BYTE PTR [rdi+0xa0],0x7
    jne 1
    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x68
    mov rbx,rdi
    mov r14,QWORD PTR [rdi+0x68]
    mov edx,DWORD PTR [r14+0x3c]
    bswap edx
    mov ebp,DWORD PTR [rdi+0x148]
    mov eax,edx
    xor eax,ebp
    test al,0xfd
    jne 2
    mov rax,QWORD PTR [rbx+0x20]
    mov ecx,DWORD PTR [r14+0x20]
    cmp rax,rcx
    jne 2
    mov rsi,QWORD PTR [rbx+0x28]
    shr edx,0x10
    lea rdi,[rsp+0x20]
    call QWORD PTR [_ZN8mlx5_wqe4send7records11SendRecords12retire_ahead]
    cmp DWORD PTR [rsp+0x20],0x1
    jne 2
    mov rax,QWORD PTR [rsp+0x28]
    movzx ecx,WORD PTR [rsp+0x34]
    mov rdx,QWORD PTR [rbx+0x40]
    add rdx,r14
    cmp rdx,QWORD PTR [rbx+0x78]
    jne 0
    xor ebp,0x1
    mov DWORD PTR [rbx+0x148],ebp
    mov rdx,QWORD PTR [rbx+0x70]
0:
    mov QWORD PTR [rbx+0x68],rdx
    mov edx,DWORD PTR [rbx+0x140]
    add DWORD PTR [rbx+0x144],edx
    movzx ecx,cl
    or cx,WORD PTR [rbx+0x154]
    mov QWORD PTR [rbx+0x50],r14
    mov QWORD PTR [rbx+0x58],rax
    mov WORD PTR [rbx+0x60],cx
    jmp 56
1:
    xor eax,eax
    ret
2:
    mov rax,QWORD PTR [rbx+0x68]
    movzx eax,BYTE PTR [rax+0x3f]
    xor al,BYTE PTR [rbx+0x148]
    test al,0x1
    jne 45
    lea r12,[rbx+0xe0]
    mov DWORD PTR [rsp+0xc],eax
    mov QWORD PTR [rsp+0x18],rax
3:
    mov r14,QWORD PTR [rbx+0x68]
    mov ecx,DWORD PTR [r14+0x3c]
    mov edi,ecx
    shr edi,0x18
    mov eax,ecx
    shr eax,0x1a
    and al,0x3
    cmp al,0x3
    sete dl
    cmp ecx,0x50000000
    setb sil
    test sil,dl
    je 6
    cmp DWORD PTR [rbx+0x12c],0x0
    jne 5
    mov rsi,QWORD PTR [rbx+0x90]
    cmp BYTE PTR [rsi+0x30],0x4
    je 66
    add rsi,0x10
    mov edx,DWORD PTR [rbx+0x144]
    movzx ecx,dil
    mov rdi,r12
    call QWORD PTR [_ZN7mlx5_cq3run3Run5start]
    test al,0x1
    jne 65
    cmp BYTE PTR [rbx+0x11f],0x10
    jb 5
    mov ecx,DWORD PTR [rbx+0x100]
    mov eax,0xffffff00
    and ecx,eax
    bswap ecx
    mov rdx,QWORD PTR [rbx+0x98]
    mov eax,DWORD PTR [rbx+0x14c]
    mov rdx,QWORD PTR [rdx+0x10]
    mov esi,ecx
    shr esi,0xc
    mov rdx,QWORD PTR [rdx+rsi*8]
    test rdx,rdx
    je 5
    and ecx,0xfff
    shl ecx,0x4
    lea rsi,[rdx+rcx*1]
    mov rdi,QWORD PTR [rdx+rcx*1+0x8]
4:
    mov rcx,rdi
    mov rdx,QWORD PTR [rsi]
    mov rdi,QWORD PTR [rsi+0x8]
    cmp rdi,rcx
    jne 4
    cmp rcx,0x2
    jb 5
    shr rdx,0x20
    cmp eax,edx
    jne 5
    cmp DWORD PTR [rcx+0x190],0x2
    sete BYTE PTR [rbx+0x13b]
5:
    mov rdx,QWORD PTR [rbx+0x90]
    add rdx,0x10
    lea rdi,[rsp+0x20]
    mov rsi,r12
    call QWORD PTR [_ZN7mlx5_cq3run3Run6expand]
    cmp DWORD PTR [rsp+0x20],0x1
    je 64
    mov r14,QWORD PTR [rsp+0x28]
    test r14,r14
    je 8
    mov QWORD PTR [rbx+0x68],r14
    mov QWORD PTR [rbx+0x40],0x40
    mov DWORD PTR [rbx+0x140],0x0
    mov QWORD PTR [rbx+0x78],0xffffffffffffffff
    xor r11d,r11d
    cmp BYTE PTR [rbx+0x13a],0x0
    setne r11b
    shl r11d,0x9
    add r11d,0x200
    mov WORD PTR [rbx+0x154],r11w
    jmp 10
6:
    cmp DWORD PTR [rbx+0x12c],0x0
    jne 9
    and dil,0xf0
    cmp dil,0x50
    sete sil
    mov edx,DWORD PTR [rbx+0x150]
    test edx,edx
    setne dil
    test sil,dil
    je 28
    dec edx
    mov DWORD PTR [rbx+0x150],edx
    add r14,QWORD PTR [rbx+0x40]
    cmp r14,QWORD PTR [rbx+0x78]
    jne 7
    xor BYTE PTR [rbx+0x148],0x1
    mov r14,QWORD PTR [rbx+0x70]
7:
    mov QWORD PTR [rbx+0x68],r14
    mov eax,DWORD PTR [rbx+0x140]
    add DWORD PTR [rbx+0x144],eax
    jmp 38
8:
    mov r14,QWORD PTR [rbx+0x68]
9:
    movzx r11d,WORD PTR [rbx+0x154]
10:
    mov eax,DWORD PTR [r14+0x20]
    mov edx,DWORD PTR [r14+0x3c]
    bswap edx
    shl rdx,0x20
    or rdx,rax
    mov r13,rdx
    shr r13,0x20
    mov r15d,r13d
    shr r15b,0x4
    cmp r15b,0xc
    je 44
    mov ebp,edx
    and ebp,0xffffff00
    bswap ebp
    movzx r10d,r15b
    mov al,0x1
    cmp r15b,0xe
    ja 20
    mov ecx,0x401e
    bt ecx,r10d
    jae 14
11:
    lea rsi,[rbx+0x30]
12:
    mov ecx,edx
    cmp QWORD PTR [rsi],rcx
    jne 13
    mov ecx,0x30
    test al,al
    je 23
    jmp 24
13:
    mov r12,r14
    jmp 15
14:
    mov ecx,0x2001
    bt ecx,r10d
    jae 20
    mov ecx,edx
    lea rax,[rbx+0x20]
    cmp QWORD PTR [rax],rcx
    je 23
    mov r12,r14
    xor eax,eax
15:
    mov rsi,QWORD PTR [rbx+0x98]
    mov edi,DWORD PTR [rbx+0x14c]
    mov rsi,QWORD PTR [rsi+0x10]
    mov r8d,ebp
    shr r8d,0xc
    mov rsi,QWORD PTR [rsi+r8*8]
    test rsi,rsi
    je 62
    mov r14,r10
    mov r8d,ebp
    and r8d,0xfff
    shl r8d,0x4
    lea r9,[rsi+r8*1]
    mov r10,QWORD PTR [rsi+r8*1+0x8]
16:
    mov rsi,r10
    mov r8,QWORD PTR [r9]
    mov r10,QWORD PTR [r9+0x8]
    cmp r10,rsi
    jne 16
    mov r9,r8
    shr r9,0x20
    test al,al
    cmove r9d,r8d
    cmp edi,r9d
    jne 62
    mov r10,r14
    cmp rsi,0x1
    je 17
    test rsi,rsi
    je 62
    test al,al
    je 22
    mov QWORD PTR [rbx+0x30],rcx
    mov QWORD PTR [rbx+0x38],rsi
    mov ecx,0x30
    mov r14,r12
    jmp 24
17:
    mov rdi,QWORD PTR [rbx]
    test rdi,rdi
    je 19
    mov rax,QWORD PTR [rbx+0x8]
    lea ecx,[r10-0x1]
    cmp ecx,0x4
    jb 18
    cmp r10d,0xe
    jne 19
18:
    shr rdx,0x30
    mov esi,ebp
    call QWORD PTR [rax+0x20]
19:
    mov rdi,rbx
    mov rsi,r12
    call _ZN7mlx5_cq4ring4slow46_$LT$impl$u20$mlx5_cq..ring..Ring$LT$Q$GT$$GT$8pass_any
    lea r12,[rbx+0xe0]
    jmp 38
20:
    mov rsi,QWORD PTR [rbx+0x98]
    mov ecx,DWORD PTR [rbx+0x14c]
    mov rsi,QWORD PTR [rsi+0x10]
    mov edi,ebp
    shr edi,0xc
    mov rdi,QWORD PTR [rsi+rdi*8]
    test rdi,rdi
    je 11
    mov r8d,ebp
    and r8d,0xfff
    shl r8d,0x4
    lea rsi,[rdi+r8*1]
    mov r9,QWORD PTR [rdi+r8*1+0x8]
21:
    mov rdi,r9
    mov r8,QWORD PTR [rsi]
    mov r9,QWORD PTR [rsi+0x8]
    cmp r9,rdi
    jne 21
    lea rsi,[rbx+0x30]
    cmp ecx,r8d
    jne 12
    test rdi,rdi
    sete al
    lea rsi,[rbx+0x20]
    lea rcx,[rbx+0x30]
    cmove rsi,rcx
    jmp 12
22:
    mov QWORD PTR [rbx+0x20],rcx
    mov QWORD PTR [rbx+0x28],rsi
    mov r14,r12
23:
    mov ecx,0x20
24:
    mov rsi,QWORD PTR [rbx+rcx*1+0x8]
    mov r8,rdx
    shr r8,0x30
    cmp r15b,0xe
    mov QWORD PTR [rsp+0x48],r11
    ja 43
    lea rcx,[data]
    movsxd rax,DWORD PTR [rcx+r10*4]
    add rax,rcx
    mov QWORD PTR [rsp+0x38],r8
    jmp rax
    mov rax,QWORD PTR [rsi+0x190]
    cmp rax,0x2
    jne 25
    mov al,0x1
    mov DWORD PTR [rsp+0x8],eax
    mov QWORD PTR [rsp+0x10],r13
    mov QWORD PTR [rsp+0x18],0x0
    mov eax,r15d
    mov DWORD PTR [rsp+0xc],eax
    jmp 35
    mov rax,QWORD PTR [rsi+0x190]
    cmp rax,0x2
    je 58
25:
    mov rdi,QWORD PTR [rsi+0x198]
    test rax,rax
    mov QWORD PTR [rsp+0x40],rsi
    je 27
    cmp QWORD PTR [rdi+0x28],r8
    jbe 26
    mov rax,QWORD PTR [rdi+0x20]
    movzx ecx,BYTE PTR [rax+r8*1]
    test cl,cl
    je 26
    xor ecx,ecx
    xchg BYTE PTR [rax+r8*1],cl
    test cl,cl
    je 26
    mov rax,QWORD PTR [rdi+0x10]
    mov r12,QWORD PTR [rax+r8*8]
    mov rsi,rdx
    shr rsi,0x36
    mov rcx,r8
    mov r8,QWORD PTR [rdi+0x30]
    mov eax,0x1
    mov r9d,0x1
    shl r9,cl
    lock or QWORD PTR [r8+rsi*8],r9
    mov rcx,QWORD PTR [rdi+0x40]
    mov BYTE PTR [rcx+rsi*1],0x1
    mov rcx,QWORD PTR [rdi+0x50]
    shr rdx,0x3c
    mov BYTE PTR [rcx+rdx*1],0x1
    cmp rax,0x1
    jne 33
    jmp 50
26:
    xor eax,eax
    cmp rax,0x1
    jne 33
    jmp 50
27:
    sub rdi,0xffffffffffffff80
    mov esi,r8d
    mov r12,r14
    mov r14,r10
    call QWORD PTR [_ZN8mlx5_wqe7receive5queue14ReceiveRecords6retire]
    mov r10,r14
    mov r14,r12
    mov r12,rdx
    cmp rax,0x1
    jne 33
    jmp 50
    mov QWORD PTR [rsp+0x10],r13
    mov r13,r14
    mov r14,r10
    lea rdi,[rsp+0x20]
    mov edx,r8d
    xor ecx,ecx
    mov r12,rsi
    call QWORD PTR [_ZN8mlx5_wqe4send7records11SendRecords10retire_any]
    mov rax,QWORD PTR [rsp+0x20]
    cmp rax,0x2
    je 42
    test rax,rax
    jne 36
    jmp 59
    mov rax,QWORD PTR [rsi+0x190]
    lea rdi,[rsi+0x198]
    cmp rax,0x2
    mov QWORD PTR [rsp+0x40],rsi
    je 29
    cmp eax,0x1
    jne 30
    mov r11,QWORD PTR [rdi]
    cmp QWORD PTR [r11+0x28],r8
    jbe 32
    mov rax,QWORD PTR [r11+0x20]
    movzx ecx,BYTE PTR [rax+r8*1]
    test cl,cl
    je 32
    xor ecx,ecx
    xchg BYTE PTR [rax+r8*1],cl
    test cl,cl
    je 32
    mov rax,QWORD PTR [r11+0x10]
    mov r12,QWORD PTR [rax+r8*8]
    mov rdi,rdx
    shr rdi,0x36
    mov rcx,r8
    mov r8,QWORD PTR [r11+0x30]
    mov eax,0x1
    mov r9d,0x1
    shl r9,cl
    lock or QWORD PTR [r8+rdi*8],r9
    mov rcx,QWORD PTR [r11+0x40]
    mov BYTE PTR [rcx+rdi*1],0x1
    mov rcx,QWORD PTR [r11+0x50]
    shr rdx,0x3c
    mov BYTE PTR [rcx+rdx*1],0x1
    test al,0x1
    je 33
    jmp 54
    mov QWORD PTR [rsp+0x10],r13
    mov r13,r14
    mov r14,r10
    lea rdi,[rsp+0x20]
    mov edx,r8d
    mov ecx,0x1
    mov r12,rsi
    call QWORD PTR [_ZN8mlx5_wqe4send7records11SendRecords10retire_any]
    mov rax,QWORD PTR [rsp+0x20]
    cmp rax,0x2
    je 42
    test rax,rax
    jne 36
    jmp 60
28:
    movzx edx,al
    lea rdi,[data]
    movsxd rsi,DWORD PTR [rdi+rdx*4]
    add rsi,rdi
    jmp rsi
    mov esi,0x20
    cmp ecx,0x4fffffff
    ja 39
    jmp 41
29:
    mov r12,r14
    mov r14,r10
    call QWORD PTR [_ZN8mlx5_wqe7receive8striding15StridingRecords13retire_failed]
    jmp 31
30:
    mov r12,r14
    mov r14,r10
    mov rdi,QWORD PTR [rdi]
    sub rdi,0xffffffffffffff80
    mov esi,r8d
    call QWORD PTR [_ZN8mlx5_wqe7receive5queue14ReceiveRecords6retire]
31:
    mov r10,r14
    mov r14,r12
    mov r12,rdx
    test al,0x1
    je 33
    jmp 54
32:
    xor eax,eax
    test al,0x1
    jne 54
33:
    mov QWORD PTR [rsp+0x10],r13
    mov DWORD PTR [rsp+0x8],0x0
    mov rsi,QWORD PTR [rsp+0x40]
34:
    mov r8,QWORD PTR [rsp+0x38]
35:
    lea rdi,[rsp+0x50]
    mov r12,rsi
    mov r13,r14
    mov rdx,r14
    mov r14,r10
    mov ecx,r10d
    call _ZN7mlx5_cq12tag_matching6retire
    movzx eax,WORD PTR [rsp+0x50]
    cmp eax,0x2
    je 47
    test eax,eax
    je 70
    mov rcx,QWORD PTR [rsp+0x54]
    mov eax,ecx
    shr eax,0x8
    mov DWORD PTR [rsp+0xc],eax
    mov QWORD PTR [rsp+0x18],rcx
    shr rcx,0x10
    mov QWORD PTR [rsp+0x60],rcx
36:
    lea r12,[rbx+0xe0]
    mov rsi,r13
    mov rdi,rbx
37:
    call _ZN7mlx5_cq4ring4slow46_$LT$impl$u20$mlx5_cq..ring..Ring$LT$Q$GT$$GT$8pass_any
38:
    mov rax,QWORD PTR [rbx+0x68]
    movzx eax,BYTE PTR [rax+0x3f]
    xor al,BYTE PTR [rbx+0x148]
    test al,0x1
    je 3
    jmp 45
    cmp ecx,0x4fffffff
    jbe 40
39:
    xor r11d,r11d
    jmp 10
    xor r11d,r11d
    cmp ecx,0x4fffffff
    ja 10
    jmp 71
40:
    mov esi,0x40
    cmp QWORD PTR [rbx+0x40],0x40
    jbe 73
41:
    mov r11d,DWORD PTR [r14+0x2c]
    bswap r11d
    cmp esi,r11d
    jb 72
    cmp al,0x2
    mov r11d,0x800
    mov eax,0x4000
    cmove r11d,eax
    jmp 10
42:
    mov DWORD PTR [rsp+0x8],0x0
    mov r10,r14
    mov r14,r13
    mov rsi,r12
    jmp 34
43:
    mov al,0x1
    mov DWORD PTR [rsp+0x8],eax
    mov QWORD PTR [rsp+0x10],r13
    mov eax,r15d
    mov DWORD PTR [rsp+0xc],eax
    mov QWORD PTR [rsp+0x18],0x0
    jmp 35
44:
    mov rdi,QWORD PTR [rbx+0x10]
    mov rsi,QWORD PTR [rbx+0x18]
    mov rdx,r14
    call _ZN7mlx5_cq4ring4slow46_$LT$impl$u20$mlx5_cq..ring..Ring$LT$Q$GT$$GT$22report_signature_error
    mov rdi,rbx
    mov rsi,r14
    jmp 37
45:
    mov rax,QWORD PTR [rbx+0x90]
    mov ecx,DWORD PTR [rbx+0x144]
    mov DWORD PTR [rax+0x2c],ecx
    mov rax,QWORD PTR [rbx+0x88]
    and ecx,0xffffff
    bswap ecx
    mov DWORD PTR [rax],ecx
46:
    xor eax,eax
    jmp 57
47:
    cmp BYTE PTR [rsp+0x8],0x0
    mov r11,QWORD PTR [rsp+0x48]
    mov r10,r14
    mov r14,r13
    mov r13,QWORD PTR [rsp+0x10]
    mov rsi,r12
    jne 69
48:
    movzx eax,BYTE PTR [rsi+0x1a8]
    test al,al
    jne 49
    test r15b,r15b
    je 51
    cmp r10d,0xd
    je 51
    cmp DWORD PTR [rsi+0x190],0x1
    jne 51
    mov rdi,QWORD PTR [rsi+0x198]
    add rdi,0x10
    mov r15,r14
    mov r14,r10
    call QWORD PTR [_ZN8mlx5_wqe7receive6shared20SharedReceiveRecords7is_lent]
    mov r10,r14
    mov r14,r15
    mov r11,QWORD PTR [rsp+0x48]
    test al,al
    je 51
49:
    mov rdi,rbx
    mov rsi,r14
    mov edx,r10d
    mov ecx,r11d
    call QWORD PTR [_ZN7mlx5_cq4ring4slow46_$LT$impl$u20$mlx5_cq..ring..Ring$LT$Q$GT$$GT$10found_lent]
    jmp 56
50:
    or r15b,0x80
    movzx ebp,r15b
    jmp 55
51:
    shl rbp,0x20
    and r13d,0xffff0000
    lea rsi,[r13*1+0x2]
    add rsi,rbp
52:
    mov rdi,rbx
53:
    call _ZN7mlx5_cq4ring13Ring$LT$Q$GT$5latch
    jmp 46
54:
    mov bp,0x180
55:
    mov rdi,rbx
    mov rsi,r14
    call _ZN7mlx5_cq4ring4slow46_$LT$impl$u20$mlx5_cq..ring..Ring$LT$Q$GT$$GT$8pass_any
    or ebp,DWORD PTR [rsp+0x48]
    mov QWORD PTR [rbx+0x50],r14
    mov QWORD PTR [rbx+0x58],r12
    mov WORD PTR [rbx+0x60],bp
56:
    mov al,0x1
57:
    add rsp,0x68
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
58:
    test r11d,0x4800
    jne 75
    mov eax,DWORD PTR [r14+0x2c]
    bswap eax
    mov WORD PTR [rbx+0x48],r8w
    mov DWORD PTR [rbx+0x4c],eax
    cmp DWORD PTR [rsi+0x190],0x2
    jne 48
    mov ecx,DWORD PTR [rsi+0x1a4]
    shr eax,0x10
    and eax,0x7fff
    je 48
    cmp ecx,r8d
    ja 48
    add eax,r8d
    cmp eax,DWORD PTR [rsi+0x1a0]
    ja 48
    mov rdx,QWORD PTR [rsi+0x198]
    mov ecx,DWORD PTR [rdx+0x100]
    movzx edx,WORD PTR [rdx+0x80]
    cmp dx,cx
    je 48
    mov rdx,QWORD PTR [rsi+0x198]
    mov r8,QWORD PTR [rdx+0x180]
    mov edi,DWORD PTR [rdx+0x188]
    dec edi
    and edi,ecx
    movzx edi,di
    mov r12,QWORD PTR [r8+rdi*8]
    cmp eax,DWORD PTR [rsi+0x1a0]
    jne 63
    mov DWORD PTR [rsi+0x1a4],0x0
    inc ecx
    movzx eax,cx
    mov DWORD PTR [rdx+0x100],eax
    mov bp,0x82
    jmp 55
59:
    movzx ebp,BYTE PTR [rsp+0x34]
    mov r12,QWORD PTR [rsp+0x28]
    jmp 61
60:
    movzx ebp,BYTE PTR [rsp+0x34]
    mov r12,QWORD PTR [rsp+0x28]
    or ebp,0x100
61:
    mov r14,r13
    jmp 55
62:
    shl rbp,0x20
    inc rbp
    mov rdi,rbx
    mov rsi,rbp
    jmp 53
63:
    mov DWORD PTR [rsi+0x1a4],eax
    mov bp,0x82
    jmp 55
64:
    mov edx,DWORD PTR [rsp+0x24]
65:
    mov eax,0x5
    jmp 67
66:
    mov eax,0x303
67:
    shl rdx,0x20
    or rdx,rax
68:
    mov rdi,rbx
    mov rsi,rdx
    jmp 53
69:
    mov rcx,QWORD PTR [rsp+0x60]
    shl rcx,0x10
    movzx eax,BYTE PTR [rsp+0xc]
    shl eax,0x8
    or rax,rcx
    movzx esi,BYTE PTR [rsp+0x18]
    or rsi,rax
    jmp 52
70:
    mov r12,QWORD PTR [rsp+0x58]
    movzx r15d,WORD PTR [rsp+0x52]
    mov rdi,rbx
    mov esi,r14d
    mov edx,ebp
    call QWORD PTR [_ZN7mlx5_cq4ring4slow46_$LT$impl$u20$mlx5_cq..ring..Ring$LT$Q$GT$$GT$12side_of_tags]
    mov ebp,r15d
    or ebp,0xffff8000
    test al,al
    cmovne ebp,r15d
    jmp 61
71:
    mov eax,0x3
    jmp 74
72:
    shl r11,0x20
    mov eax,0x4
    jmp 74
73:
    mov eax,0x3
    xor r11d,r11d
74:
    shl edx,0x8
    or rdx,rax
    or rdx,r11
    jmp 68
75:
    shr rdx,0x1a
    and edx,0x300
    or rdx,0x3
    jmp 68
